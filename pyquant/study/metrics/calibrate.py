"""Statistics of the inputs of a model's matrices, which quantizers are made with."""

from __future__ import annotations

from pyquant.calibration.calibrate import calibrate_model
from pyquant.study.metric import Metric
from pyquant.study.task import Measured, Progress, Task

REPORTED = ("n_ctx", "n_tokens", "n_matrices", "n_inputs", "output_bytes")


class Calibrate(Metric):
    """Writes HESSIAN and an importance matrix."""

    name = "calibrate"
    version = 1
    unit = "prerequisite"

    def run(self, task: Task, threads: int | None, progress: Progress) -> list[Measured]:
        stats, imatrix = task.files
        report = calibrate_model(
            task.model,
            output=stats,
            imatrix=imatrix,
            threads=threads,
            force=True,
            progress=lambda what, done, total: progress(done / total, f"{what}, {done} of {total}"),
            **dict(task.options),
        ).to_json()
        return [Measured({key: report[key] for key in REPORTED})]
