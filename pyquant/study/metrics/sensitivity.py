"""Measure how much a model suffers from noise in each tensor, which sets the steps of mode `ecsq`."""

from __future__ import annotations

from pyquant.files.output_file import write_bytes
from pyquant.fit.measure_sensitivity import measure_sensitivity
from pyquant.study.metric import Metric
from pyquant.study.task import Measured, Progress, Task, of_count


class Sensitivity(Metric):
    """Writes a TOML of sensitivities."""

    name = "sensitivity"
    version = 2
    unit = "prerequisite"

    def run(self, task: Task, threads: int | None, progress: Progress) -> list[Measured]:
        measured = measure_sensitivity(
            task.model, threads=threads, progress=of_count(progress, "tensor"), **dict(task.options)
        )
        write_bytes(task.files[0], measured.to_toml().encode(), sources=[], force=True)
        return [Measured(measured.to_json())]
