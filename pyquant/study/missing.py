"""Make tasks for those runs of a plan that have no result yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyquant.errors import StudyError
from pyquant.llama.cache_types import F16_CACHE
from pyquant.study.metric import Work
from pyquant.study.metrics import METRICS, Metric
from pyquant.study.plan import Row, StudyPlan
from pyquant.study.store import Run, Store
from pyquant.study.study_text import StudyText
from pyquant.study.task import Task

OVERHEAD = 8_000_000  # weights that a token takes in the time of everything but weights
(MAKER,) = (metric for metric in METRICS if metric.makes_model)


def tasks(plan: StudyPlan, store: Store) -> list[Task]:
    """List what is missing of a study, in the order in which it is best begun.

    Raises StudyError: a result cannot be read.
    """
    missing = {run.key for run in plan.runs() if not _is_done(store, run)}
    todo: list[Task] = []
    for base in plan.rows:
        if base.mode is None:
            todo += _Model(plan, store, base, missing).tasks()
    order = [metric.name for metric in METRICS]
    return sorted(todo, key=lambda task: order.index(task.metric))


def _earlier(maker: Task, comparisons: list[list[Task]]) -> frozenset[str]:
    """Name the parts of comparisons that are measured before a model is made: all but the one before its own.

    So models of two parts at most are there at a time.
    """
    return frozenset(
        part.name
        for parts in comparisons
        for own in [next((i for i, part in enumerate(parts) if maker.files[0] in part.files), 0)]
        for part in parts[: max(0, own - 1)]
    )


def _is_done(store: Store, run: Run) -> bool:
    if not store.has(run.key):
        return False
    if (problem := store.problem(run.key)) is not None:
        raise StudyError(problem)
    return True


@dataclass(frozen=True)
class _Comparison:
    """Rows that are to be measured together: the unquantized model first, or one row by itself.

    With each row goes the text that it is measured on, if there is one: of all the same, with caches.
    """

    metric: Metric
    rows: list[tuple[Row, StudyText | None]]

    @property
    def text(self) -> StudyText | None:
        return self.rows[0][1]


class _Model:
    """Missing runs of one model and its quantizers. rows: the model itself first."""

    def __init__(self, plan: StudyPlan, store: Store, base: Row, missing: set[str]) -> None:
        self.plan, self.store, self.base, self.missing = plan, store, base, missing
        self.rows = [row for row in plan.rows if row.source is base.source]
        self.makers: dict[Path, str] = {}  # of files: the tasks that make them

    def tasks(self) -> list[Task]:
        metrics = self.plan.config.metrics
        compared = [
            comparison
            for metric in metrics
            if metric.needs_files
            for comparison in self._comparisons(metric)
            if comparison.rows
        ]
        used = {row.file for comparison in compared for row, _ in comparison.rows}
        by_itself = [
            (metric, row)
            for metric in metrics
            if not (metric.needs_files or metric.makes_model)
            for row in self.rows
            if self._needed(row.runs.get((metric.name, None)))
        ]
        made = [
            row
            for row in self.rows
            if self._needed(row.runs.get((MAKER.name, None))) or (row.file in used and not row.file.exists())
        ]
        wanted = {file for row in [*(row for _, row in by_itself), *made] for file in row.uses}
        wanted |= {self._file(comparison.text) for comparison in compared if comparison.text}
        todo = self._prepare(wanted)
        name = self.base.source.name
        for metric, row in by_itself:
            todo.append(self._task(metric, f"{metric.name} of {name} {row.label}", [(row, None)]))
        makers = [self._task(MAKER, f"{name} {row.label}", [(row, None)]) for row in made]
        self.makers |= {row.file: task.name for row, task in zip(made, makers)}
        parts = [list(self._parts(comparison)) for comparison in compared]
        todo += [replace(task, behind=_earlier(task, parts)) for task in makers]
        return [*todo, *(task for some in parts for task in some)]

    def _prepare(self, wanted: set[Path]) -> list[Task]:
        """List what makes the files that are wanted and not there, and the results that are missing."""
        # Needs come after those whose files they use, as they are in the order of rows.
        every = list({need.run.key: need for row in self.rows for need in row.needs}.values())
        missing = []
        for need in reversed(every):
            if self._needed(need.run) or any(file in wanted and not file.exists() for file in need.files):
                missing.append(need)
                wanted |= set(need.uses)
        todo = []
        for need in reversed(missing):
            name = f"{need.run.names['quantizer']} of {self.base.source.name}"
            todo.append(
                Task(
                    name=name,
                    metric=need.run.metric,
                    model=self.base.source.path,
                    modes=(None,),
                    files=need.files,
                    runs=(self._needed(need.run),),
                    cost=self._cost(need.tokens),
                    after=frozenset(self.makers[file] for file in need.uses if file in self.makers),
                    options=need.options,
                )
            )
            self.makers |= dict.fromkeys(need.files, name)
        return todo

    def _comparisons(self, metric: Metric) -> Iterator[_Comparison]:
        if metric.unit == "sample":
            for row in self.rows:
                if self._needed(row.runs.get((metric.name, None))):
                    yield _Comparison(metric, [(row, None)])
            return
        by_name: dict[str, list[StudyText | None]] = {}
        for text in self.plan.texts_of(metric):
            by_name.setdefault(text.name if text else "", []).append(text)
        for texts in by_name.values():
            yield _Comparison(metric, self._beside_base(metric, texts))

    def _beside_base(
        self, metric: Metric, texts: Sequence[StudyText | None]
    ) -> list[tuple[Row, StudyText | None]]:
        """Return the base, and what is still to be measured beside it, or nothing.

        texts: one, first with a cache of F16, as the base has it.
        """
        base = (self.base, texts[0])
        every = [(row, text) for text in texts for row in self.rows]
        missing = [(row, text) for row, text in every if self._needed(row.runs.get((metric.name, text)))]
        if missing == [base]:  # someone removed its file: it is measured with any of the others
            missing = every[:2]
        return [base, *(pair for pair in missing if pair != base)] if missing else []

    def _file(self, text: StudyText) -> Path:
        """Return where a text is: an own chat among what the base needs."""
        if text.kind != "answers":
            return text.path.absolute()
        ((file,),) = (need.files for need in self.base.needs)
        return file

    def _parts(self, comparison: _Comparison) -> Iterator[Task]:
        """List the tasks of a comparison; on texts, as many models in each as are to run together."""
        metric, rows = comparison.metric, comparison.rows
        name = f"{metric.name} of {self.base.source.name}"
        if comparison.text is None:
            label = f"{name} {rows[0][0].label}" if metric.unit == "sample" else name
            yield self._task(metric, label, rows)
            return
        together = self.plan.config.together or len(rows)
        for begin in range(1, len(rows), together):
            part = f", part {begin // together + 1}" if len(rows) > together + 1 else ""
            some = [rows[0], *rows[begin : begin + together]]
            yield self._task(metric, f"{name} on {comparison.text.name}{part}", some)

    def _needed(self, run: Run | None) -> Run | None:
        return run if run is not None and run.key in self.missing else None

    def _task(self, metric: Metric, name: str, measured: list[tuple[Row, StudyText | None]]) -> Task:
        rows, text = [row for row, _ in measured], measured[0][1]
        work: Work = metric.work(self.plan.asked, rows[-1].quantizer, text)
        read = self._file(text) if text else work.text
        # Every model is measured from the base: without it a quantized one would stand in its place.
        needs = tuple(self._made_by([rows[0].file, row.file, *row.uses]) for row in rows)
        return Task(
            name=name,
            metric=metric.name,
            model=self.base.source.path,
            modes=tuple(row.mode for row in rows),
            files=tuple(row.file for row in rows),
            runs=tuple(self._needed(row.runs.get((metric.name, on))) for row, on in measured),
            cost=self._cost(work.tokens * len(rows)),
            after=self._made_by([read] if read else []).union(*needs),
            needs=needs,
            text=read,
            kind=text.kind if text else "text",
            caches=tuple(on.cache if on else F16_CACHE for _, on in measured),
            finished=self._finished(metric, rows[0]),
            options=tuple(work.options.items()),
        )

    def _made_by(self, files: Iterable[Path]) -> frozenset[str]:
        return frozenset(self.makers[file] for file in files if file in self.makers)

    def _finished(self, metric: Metric, row: Row) -> Path | None:
        if metric.unit != "sample":
            return None
        samples = Run(metric.name, metric.inputs_of_samples(row.runs[metric.name, None].inputs))
        return self.store.samples_path(samples.key)

    def _cost(self, tokens: float) -> float:
        return tokens * (self.base.source.n_weights + OVERHEAD)
