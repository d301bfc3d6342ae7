"""Tables of 16 values, learned from a model's weights."""

from __future__ import annotations

from pyquant.files.output_file import write_bytes
from pyquant.fit.learn_tables import learn_tables
from pyquant.study.metric import Metric
from pyquant.study.task import Measured, Progress, Task, of_bytes


class Learn(Metric):
    """Writes a TOML of tables."""

    name = "learn"
    version = 1
    unit = "prerequisite"

    def run(self, task: Task, threads: int | None, progress: Progress) -> list[Measured]:
        tables = learn_tables(task.model, threads=threads, progress=of_bytes(progress), **dict(task.options))
        write_bytes(task.files[0], tables.to_toml().encode(), sources=[], force=True)
        by_name = {name: values.tolist() for name, values in tables.by_name.items()}
        return [Measured({"values": tables.values.tolist(), "tables": by_name})]
