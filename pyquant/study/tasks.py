"""What is to be done for those runs of a plan that have no result yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyquant.errors import StudyError
from pyquant.files.text import Text
from pyquant.study.measure import Task
from pyquant.study.plan import Plan, Row
from pyquant.study.prerequisites import about_n_tokens
from pyquant.study.store import KINDS, Run, Store

# About what a pass over the weights costs, in tokens that a forward pass takes in that time.
CODES, SIZE = 20, 50
TRIED = 16  # steps, each quantized and measured, until one is found
GENERATED = 10  # generation is that much slower than prompt processing
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

    def tasks(self) -> list[Task]:
        compared = {text.path: self._beside_base(text.path) for text in self.plan.texts}
        timed = self._beside_base(None)
        used = {row.file for rows in [*compared.values(), timed] for row in rows}
        counted = [row for row in self.rows if self._needed(row.codes)]
        made = [
            row for row in self.rows if self._needed(row.size) or (row.file in used and not row.file.exists())
        ]
        todo = self._prepare({file for row in [*counted, *made] for file in row.uses})
        name = self.base.source.name
        todo += [
            self._task("codes", f"codes of {name} {row.label}", [row], [row.codes], CODES) for row in counted
        ]
        for row in made:
            todo.append(self._make(row, f"{name} {row.label}"))
            self.makers[row.file] = todo[-1].name
        for text, called in zip(self.plan.texts, self.plan.text_names):
            todo += self._quality(text, called, compared[text.path])
        return [*todo, self._speed(timed)] if timed else todo

    def _prepare(self, wanted: set[Path]) -> list[Task]:
        """What makes the files that are wanted and not there, and results that are missing."""
        every = {need.run.key: need for row in self.rows for need in row.needs}
        needs = sorted(every.values(), key=lambda need: KINDS.index(need.run.kind))
        missing = []
        for need in reversed(needs):
            if self._needed(need.run) or any(file in wanted and not file.exists() for file in need.files):
                missing.append(need)
                wanted |= set(need.uses)
        todo = []
        for need in reversed(missing):
            name = f"{need.run.names['quantizer']} of {self.base.source.name}"
            after = frozenset(self.makers[file] for file in need.uses if file in self.makers)
            options, run = need.options, self._needed(need.run)
            todo.append(
                Task(
                    name, need.run.kind, self.base.source.path, (None,), need.files, (run,),
                    self._cost(need.tokens), after, options=options,
                )
            )  # fmt: skip
            self.makers |= dict.fromkeys(need.files, name)
        return todo

    def _make(self, row: Row, name: str) -> Task:
        config, storage = self.plan.config, row.quantizer and row.quantizer.storage
        if storage is None or not storage.searched:
            return self._task("size", name, [row], [row.size], SIZE)
        tokens, options = TRIED * SIZE, (("bpw", storage.bpw), ("like", storage.like))
        if storage.like is None:
            return self._task("size", name, [row], [row.size], tokens, options=options)
        text = self.plan.texts[0]
        tokens += TRIED * about_n_tokens(text, config.ctx, config.chunks)
        options += (("n_ctx", config.ctx), ("n_chunks", config.chunks))
        return self._task("size", name, [row], [row.size], tokens, text=text.path.resolve(), options=options)

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
        tokens = about_n_tokens(text, config.ctx, config.chunks)
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
            cost=self._cost(tokens * len(rows)),
            after=frozenset(
                self.makers[file] for row in rows for file in (row.file, *row.uses) if file in self.makers
            ),
            **more,
        )

    def _cost(self, tokens: float) -> float:
        return tokens * (self.base.source.n_weights + OVERHEAD)
