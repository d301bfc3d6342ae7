"""Running a study: what is missing, in order, with every result written as soon as it is there."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

from pyquant.errors import PyquantError, StudyError
from pyquant.files.output_file import write_bytes
from pyquant.machine import n_threads
from pyquant.study import executor
from pyquant.study.config import StudyConfig
from pyquant.study.measure import Outcome, Task, perform
from pyquant.study.plan import Plan, make_plan
from pyquant.study.report.html import report
from pyquant.study.store import Store, digest
from pyquant.study.tasks import tasks

WATCH_EVERY = 0.25  # seconds


@dataclass(frozen=True)
class Status:
    """How far a study is.

    done, total: tasks. share: of all work that is to be done, by estimate. seconds_left: None until
    something can be said. running: by task its share done and what is at work. finished: the task
    that just ended, and how: seconds, or an error.
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
    """What a run of a study did. made, kept: results made now, and there before."""

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
    hashing: Callable[[str], None] | None = None,
) -> Summary:
    """Does what is missing of a study in a results folder, and writes its report.

    workers: local processes. threads: of each; by default they share the processors, and speed is
    measured on all. cluster: a Dask scheduler's file or address, used instead. keep: leave the
    quantized models, and the statistics that they were made with, in the folder. command: for the
    provenance. Stopped at any point, even killed, it goes on from there when it is run again. Raises
    StudyError, with what failed, when everything else is done; ConfigError, ModelFileError and TextError
    before anything is.
    """
    with Store(folder) as store:
        for partial in store.leftovers():
            partial.unlink()
        plan = make_plan(config, store, hashing)
        todo = tasks(plan, store)
        store.write_study(plan.to_json() | {"command": command})
        workers = executor.local_workers(workers)
        shared = threads or (None if cluster else max(1, n_threads(None) // workers))
        engine = executor.cluster(cluster) if cluster else executor.local(min(workers, max(len(todo), 1)))
        work = _Work(store, todo, command, watch, threads, shared)
        if todo:
            with engine as pool:
                work.go(pool)
        page = store.folder / "report.html"
        write_bytes(page, report(store).encode(), sources=[], force=True)
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


def _remove_models(plan: Plan, store: Store) -> None:
    """And statistics, which may be as large, and spools of calibrations that nobody wants any more."""
    for spool in store.calibration.glob(".*"):
        spool.unlink()
    for row in plan.rows:
        if row.mode is not None:
            row.file.unlink(missing_ok=True)
        for need in row.needs:
            if need.run.kind == "calibrate":
                need.files[0].unlink(missing_ok=True)


class _Work:
    """Tasks on their way."""

    def __init__(
        self,
        store: Store,
        todo: list[Task],
        command: str,
        watch: Watch | None,
        threads: int | None,
        shared: int | None,
    ) -> None:
        self.store, self.command, self.watch = store, command, watch
        self.threads, self.shared = threads, shared
        self.waiting = list(todo)
        self.total = len(todo)
        self.cost = sum(task.cost for task in todo)
        self.cost_done = 0.0
        self.done: set[str] = set()
        self.failed: dict[str, str] = {}
        self.warnings: set[str] = set()
        self.running: dict[Future[Outcome], Task] = {}
        self.begin = time.monotonic()

    def go(self, pool: Executor) -> None:
        """Until nothing is left to do."""
        try:
            while self.waiting or self.running:
                for task in self._ready():
                    self.waiting.remove(task)
                    threads = self.threads if task.kind == "speed" else self.shared
                    self.running[pool.submit(perform, task, threads, self._progress_file(task))] = task
                finished, _ = wait(self.running, timeout=WATCH_EVERY, return_when=FIRST_COMPLETED)
                for future in finished:
                    self._finish(self.running.pop(future), future)
                self._tell()
        except BrokenProcessPool:
            raise StudyError(
                "a worker process was killed, perhaps for want of memory; finished results are kept. "
                "Fewer --workers, or a smaller `together` in the TOML, take less"
            ) from None

    def _ready(self) -> list[Task]:
        for task in [task for task in self.waiting if task.after & self.failed.keys()]:
            self.waiting.remove(task)
            self.failed[task.name] = f"not begun, for want of {min(task.after & self.failed.keys())}"
        ready = [task for task in self.waiting if task.after <= self.done and task.kind != "speed"]
        if self.waiting and not ready and not self.running:
            ready = self.waiting[:1]  # speed is measured alone, one after the other
        return ready

    def _finish(self, task: Task, future: Future[Outcome]) -> None:
        try:
            outcome = future.result()
        except PyquantError as error:
            self.failed[task.name] = str(error)
            self._tell((task.name, str(error)))
            return
        finally:
            self.cost_done += task.cost
            self._progress_file(task).unlink(missing_ok=True)
        for run, result in zip(task.runs, outcome.results):
            if run is not None:
                about = {"command": self.command, "names": run.names, "task": task.name}
                self.store.write(run, result, about | outcome.provenance)
        self.warnings |= set(outcome.provenance["warnings"])
        self.done.add(task.name)
        self._tell((task.name, outcome.provenance["seconds"]))

    def _tell(self, finished: tuple[str, float | str] | None = None) -> None:
        if not self.watch:
            return
        running = {task.name: self._progress(task) for task in self.running.values()}
        at_work = sum(task.cost * running[task.name][0] for task in self.running.values())
        share = (self.cost_done + at_work) / max(self.cost, 1)
        elapsed = time.monotonic() - self.begin
        left = elapsed * (1 - share) / share if share > 0.02 else None
        ended = len(self.done) + len(self.failed)
        self.watch(Status(ended, self.total, share, left, running, finished))

    def _progress(self, task: Task) -> tuple[float, str]:
        with contextlib.suppress(OSError, ValueError):
            share, what = json.loads(self._progress_file(task).read_text())
            return share, what
        return 0.0, ""

    def _progress_file(self, task: Task) -> Path:
        return self.store.progress / f"{digest(task.name)[:16]}.json"
