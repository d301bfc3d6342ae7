"""A recipe: the types that give a model of some size the least KLD."""

from __future__ import annotations

from pyquant.calibration.sensitivity_file import Sensitivity
from pyquant.files.output_file import write_bytes
from pyquant.fit.mix_model import mix_model
from pyquant.study.metric import Metric
from pyquant.study.task import Measured, Progress, Task


class MixMetric(Metric):
    """Writes a TOML of types."""

    name = "mix"
    version = 1
    unit = "prerequisite"

    def run(self, task: Task, threads: int | None, progress: Progress) -> list[Measured]:
        options = dict(task.options)
        sensitivity = Sensitivity.read(str(options.pop("sensitivity")))
        found = mix_model(
            task.model,
            sensitivity=sensitivity,
            threads=threads,
            progress=lambda what, done, n: progress(done / max(n, 1), what),
            **options,
        )
        write_bytes(task.files[0], found.recipe.to_toml().encode(), sources=[], force=True)
        return [Measured(found.to_json())]
