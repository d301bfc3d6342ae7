"""What is to be done for those runs of a plan that have no result yet."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyquant.errors import StudyError
from pyquant.study.measure import Task
from pyquant.study.plan import Plan, Row
from pyquant.study.store import KINDS, Run, Store
from pyquant.text import Text

# About what a pass over the weights costs, in tokens that a forward pass takes in that time.
CODES, SIZE = 20, 50
GENERATED = 10  # generation is that much slower than prompt processing
BYTES_PER_TOKEN = 4
OVERHEAD = 8_000_000  # weights that a token takes in the time of everything but weights


def tasks(plan: Plan, store: Store) -> list[Task]:
    """In the order in which they are best begun. Raises StudyError if a result cannot be read."""
    missing = {run.key for run in plan.runs() if not _there(store, run)}
    todo: list[Task] = []
    for base in plan.rows:
        if base.mode is None:
            todo += _Model(plan, base, missing).tasks()
    return sorted(todo, key=lambda task: KINDS.index(task.kind))


def _there(store: Store, run: Run) -> bool:
    if not store.has(run.key):
        return False
    if (problem := store.problem(run.key)) is not None:
        raise StudyError(problem)
    return True


class _Model:
    """What is missing of one model and its quantizers. rows: the model itself first."""

    def __init__(self, plan: Plan, base: Row, missing: set[str]) -> None:
        self.plan, self.base, self.missing = plan, base, missing
        self.rows = [row for row in plan.rows if row.source is base.source]
        self.makers: dict[Path, str] = {}  # of files: the tasks that make them

    def tasks(self) -> Iterator[Task]:
        compared = {text.path: self._beside_base(text.path) for text in self.plan.texts}
        timed = self._beside_base(None)
        used = {row.file for rows in [*compared.values(), timed] for row in rows}
        name = self.base.source.name
        for row in self.rows:
            if self._needed(row.codes):
                yield self._task("codes", f"codes of {name} {row.label}", [row], [row.codes], CODES)
            if self._needed(row.size) or (row.file in used and not row.file.exists()):
                task = self._task("size", f"{name} {row.label}", [row], [row.size], SIZE)
                self.makers[row.file] = task.name
                yield task
        for text, called in zip(self.plan.texts, self.plan.text_names):
            yield from self._quality(text, called, compared[text.path])
        if timed:
            yield self._speed(timed)

    def _needed(self, run: Run | None) -> Run | None:
        return run if run is not None and run.key in self.missing else None

    def _beside_base(self, text: Path | None) -> list[Row]:
        """The base, and the quantizers that are still to be measured beside it: on a text, or their
        speed; nothing if there are none."""
        runs = [row.quality[text] if text else row.speed for row in self.rows]
        found = [row for row, run in zip(self.rows, runs) if self._needed(run)]
        if found == [self.base]:  # someone removed its file: it is measured with any of the others
            found = self.rows[:2]
        return [self.base, *(row for row in found if row is not self.base)] if found else []

    def _quality(self, text: Text, called: str, rows: list[Row]) -> Iterator[Task]:
        config = self.plan.config
        tokens = min(len(text.data) / BYTES_PER_TOKEN, (config.chunks or math.inf) * config.ctx)
        options = (("n_ctx", config.ctx), ("n_chunks", config.chunks))
        together = config.together or len(self.rows)
        for begin in range(1, len(rows), together):
            some = [self.base, *rows[begin : begin + together]]
            part = f", part {begin // together + 1}" if len(rows) > together + 1 else ""
            name = f"quality of {self.base.source.name} on {called}{part}"
            runs = [row.quality[text.path] for row in some]
            where = text.path.resolve()
            yield self._task("quality", name, some, runs, tokens, text=where, options=options)

    def _speed(self, rows: list[Row]) -> Task:
        speed = self.plan.config.speed
        tokens = speed.rounds * (speed.prompt + GENERATED * speed.generate)
        options = (("n_prompt", speed.prompt), ("n_generate", speed.generate), ("rounds", speed.rounds))
        name = f"speed of {self.base.source.name}"
        return self._task("speed", name, rows, [row.speed for row in rows], tokens, options=options)

    def _task(
        self, kind: str, name: str, rows: list[Row], runs: list[Run | None], tokens: float, **more: Any
    ) -> Task:
        """tokens: what it takes for each of the rows, in tokens of a forward pass."""
        return Task(
            name=name,
            kind=kind,
            model=self.base.source.path,
            modes=tuple(row.mode for row in rows),
            files=tuple(row.file for row in rows),
            runs=tuple(map(self._needed, runs)),
            cost=tokens * len(rows) * (self.base.source.n_weights + OVERHEAD),
            after=frozenset(self.makers[row.file] for row in rows if row.file in self.makers),
            **more,
        )
