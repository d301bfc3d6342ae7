"""Running a study: what is missing, in order, with every result written as soon as it is there."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

from pyquant.errors import PyquantError, StudyError, said_by_system
from pyquant.files.json import read_json
from pyquant.files.kept import keeping
from pyquant.files.output_file import write_bytes
from pyquant.machine.cpu import n_threads
from pyquant.study import executor
from pyquant.study.config import StudyConfig
from pyquant.study.measure import perform
from pyquant.study.metrics import Metric
from pyquant.study.missing import tasks
from pyquant.study.plan import StudyPlan, make_plan
from pyquant.study.report.html import report
from pyquant.study.sources import Given, Hashing
from pyquant.study.store import Store, digest
from pyquant.study.task import Outcome, Task
from pyquant.study.time_left import TimeLeft

logger = logging.getLogger(__name__)

WATCH_EVERY = 0.25  # seconds


@dataclass(frozen=True)
class Status:
    """State of a study: how far it is.

    Attributes
    ----------
    done, total
        Number of tasks.
    share
        Share of all work that is done, by estimate.
    seconds_left
        None until something can be said.
    running
        By task that has begun: the share of it that is done, and what is at work.
    finished
        The task that just ended, and how: its seconds, or its error.
    """

    done: int
    total: int
    share: float
    seconds_left: float | None
    running: dict[str, tuple[float, str]]
    finished: tuple[str, float | str] | None = None


Watch = Callable[[Status], None]


@dataclass(frozen=True)
class Summary:
    """Summary of what a run of a study did.

    Attributes
    ----------
    report
        The page.
    made, kept
        Number of results that were made now, and that were there before.
    warnings
        Those of llama.cpp.
    """

    report: Path
    made: int
    kept: int
    warnings: list[str] = field(default_factory=list)


def run_study(
    config: StudyConfig,
    folder: str | os.PathLike[str],
    *,
    workers: int | None = None,
    threads: int | None = None,
    cluster: str | None = None,
    keep: bool = False,
    command: str = "",
    watch: Watch | None = None,
    hashing: Hashing | None = None,
) -> Summary:
    """Do what is missing of a study in a results folder, and write its report.

    Stopped at any point, even killed, it goes on from there when it is run again.

    Parameters
    ----------
    config
        The study.
    folder
        The results folder, new or of an earlier run.
    workers
        Number of local processes.
    threads
        Threads of each process. By default they share the cores, and speed is measured on all.
    cluster
        File or address of a Dask scheduler, used instead of local processes.
    keep
        Whether to leave the quantized models, and the statistics that they were made with, in the folder.
    command
        What was typed, for the provenance.
    watch
        Told how far the study is.
    hashing
        Told the name of each model that is read for its hash.

    Raises
    ------
    StudyError
        Tasks failed. It says which, when everything else is done.
    ConfigError, ModelFileError, TextError
        Something is wrong with the study, a model or a text; before anything is done.
    """
    with _system_errors(folder), Store(folder) as store, keeping(store.folder, "what is finished"):
        for partial in store.leftovers():
            partial.unlink()
        plan = make_plan(config, store, hashing, threads)
        todo = tasks(plan, store)
        store.write_study(plan.to_json() | {"command": command})
        workers = executor.local_workers(workers)
        shared = threads or (None if cluster else max(1, n_threads(None) // workers))
        engine = executor.cluster(cluster) if cluster else executor.local(min(workers, max(len(todo), 1)))
        work = _Work(store, plan.given, todo, command, watch, threads, shared, keep)
        if todo:
            with engine as pool:
                work.go(pool)
        page = store.folder / "report.html"
        try:
            written = report(store).encode(errors="backslashreplace")  # as in the store
            write_bytes(page, written, sources=[], force=True)
        except PyquantError:
            if not work.failed:  # what failed before may be why, and is more than the page
                raise
        if work.failed:
            lines = [f"{name}: {error}" for name, error in work.failed.items()]
            raise StudyError(
                f"{len(lines)} of {len(todo)} tasks failed; the others' results are in {store.folder}:\n"
                + "\n".join(f"  {line}" for line in lines)
            )
        if not keep:
            _remove_models(plan, store)
    missing = {run.key for task in todo for run in task.runs if run}
    return Summary(page, len(missing), len(plan.runs()) - len(missing), sorted(work.warnings))


@contextlib.contextmanager
def _system_errors(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Turn what the system refuses, such as another open file, into a StudyError."""
    try:
        yield
    except OSError as error:
        raise StudyError(f"{said_by_system(error, folder)}; the same command goes on from there") from None


def _remove_models(plan: StudyPlan, store: Store) -> None:
    """Remove models, statistics, which may be as large, and what calibrations and methods left unfinished."""
    for unfinished in (*store.calibration.glob(".*"), *store.models.glob(".*")):
        if unfinished.is_dir():
            shutil.rmtree(unfinished)
        else:
            unfinished.unlink()
    for row in plan.rows:
        if row.mode is not None:
            row.file.unlink(missing_ok=True)
        for need in row.needs:
            for file in need.large:
                file.unlink(missing_ok=True)
    if others := list(store.models.iterdir()):
        logger.warning("%s: models that this study does not name stay: %d", store.models, len(others))


def _said(error: Exception, folder: Path) -> str:
    """Say why a task failed; what nobody foresaw by its type too."""
    if isinstance(error, OSError):
        return said_by_system(error, folder)
    if isinstance(error, PyquantError | MemoryError):
        return str(error) or "not enough memory"
    return f"{type(error).__name__}: {error}"


def _alone(task: Task) -> bool:
    return Metric.registry[task.metric].alone


class _Work:
    """Tasks on their way."""

    def __init__(
        self,
        store: Store,
        given: Given,
        todo: list[Task],
        command: str,
        watch: Watch | None,
        threads: int | None,
        shared: int | None,
        keep: bool,
    ) -> None:
        self.store, self.given, self.command, self.watch = store, given, command, watch
        self.threads, self.shared, self.keep = threads, shared, keep
        self.waiting = list(todo)
        self.total = len(todo)
        self.cost = sum(task.cost for task in todo)
        self.cost_done = 0.0
        self.done: set[str] = set()
        self.failed: dict[str, str] = {}
        self.unfinished: list[Task] = []  # those that failed
        self.warnings: set[str] = set()
        self.running: dict[Future[Outcome], Task] = {}
        self.time_left = TimeLeft(time.monotonic())

    def go(self, pool: Executor) -> None:
        """Work until nothing is left to do."""
        try:
            while self.waiting or self.running:
                for task in self._ready():
                    self.waiting.remove(task)
                    threads = self.threads if _alone(task) else self.shared
                    self.running[pool.submit(perform, task, threads, self._progress_file(task))] = task
                finished, _ = wait(self.running, timeout=WATCH_EVERY, return_when=FIRST_COMPLETED)
                for future in finished:
                    self._finish(self.running.pop(future), future)
                self._report()
        except BrokenProcessPool:
            raise StudyError(
                "a worker process was killed, perhaps for want of memory; finished results are kept. "
                "Fewer --workers, or a smaller `together` in the TOML, take less"
            ) from None

    def _ready(self) -> list[Task]:
        for i, task in reversed(list(enumerate(self.waiting))):
            if lost := task.after & self.failed.keys():
                rest = task.without(lost)
                self.waiting[i : i + 1] = [rest] if rest else []
                if not rest:
                    self._fail(task, f"not begun, for want of {min(lost)}")
        ended = self.done | self.failed.keys()
        ready = [
            task
            for task in self.waiting
            if task.after <= self.done and task.behind <= ended and not _alone(task)
        ]
        if self.waiting and not ready and not self.running:
            ready = self.waiting[:1]  # those that are measured alone, one after the other
        return ready

    def _finish(self, task: Task, future: Future[Outcome]) -> None:
        try:
            outcome = future.result()
            self._check_given(task)
        except BrokenProcessPool:
            raise
        except Exception as error:  # a scheme of somebody's may raise anything
            said = _said(error, self.store.folder)
            self._fail(task, said)
            self._report((task.name, said))
            return
        finally:
            self.cost_done += task.cost
            self._progress_file(task).unlink(missing_ok=True)
        for run, measured in zip(task.runs, outcome.results):
            if run is not None:
                asked = {"command": self.command, "names": run.names, "task": task.name}
                self.store.write(
                    run, measured.result, asked | outcome.provenance | measured.costs, measured.items
                )
        self.warnings |= set(outcome.provenance["warnings"])
        self.done.add(task.name)
        if not self.keep:
            self._remove_models_of(task)
        self._report((task.name, outcome.provenance["seconds"]))

    def _check_given(self, task: Task) -> None:
        """Refuse what was made of other files than those that the plan was made of. Raises StudyError."""
        if not (changed := self.given.changed(task.reads)):
            return
        metric = Metric.registry[task.metric]
        if metric.makes_model or metric.unit == "prerequisite":
            for file in {*task.files} - {task.model}:
                file.unlink(missing_ok=True)  # the next run would take it for what it was to be
        raise StudyError(f"{changed[0]}: changed while the study ran; the same command does this again")

    def _fail(self, task: Task, said: str) -> None:
        self.failed[task.name] = said
        self.unfinished.append(task)

    def _remove_models_of(self, task: Task) -> None:
        """Remove a task's quantized models, but those that another needs, now or when it is run again."""
        others = [*self.waiting, *self.running.values(), *self.unfinished]
        for file in set(task.files).difference(*(other.files for other in others)):
            if file.parent == self.store.models:
                file.unlink(missing_ok=True)

    def _report(self, finished: tuple[str, float | str] | None = None) -> None:
        if not self.watch:
            return
        running = {task.name: known for task in self.running.values() if (known := self._progress(task))}
        begun = [task for task in self.running.values() if task.name in running]
        at_work = sum(task.cost * running[task.name][0] for task in begun)
        share = (self.cost_done + at_work) / max(self.cost, 1)
        left = self.time_left.at(share, time.monotonic())
        ended = len(self.done) + len(self.failed)
        self.watch(Status(ended, self.total, share, left, running, finished))

    def _progress(self, task: Task) -> tuple[float, str] | None:
        """Read how far a task is; None: it waits for a worker."""
        with contextlib.suppress(OSError, ValueError):
            share, what = read_json(self._progress_file(task))
            return share, what
        return None

    def _progress_file(self, task: Task) -> Path:
        return self.store.progress / f"{digest(task.name)[:16]}.json"
