"""Doing a task, here and now, as it happens in a worker."""

from __future__ import annotations

import json
import logging
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path

from pyquant.machine.cpu import cpu_name
from pyquant.machine.environment import environment
from pyquant.machine.memory import forget_peak, peak_memory
from pyquant.study.metrics import Metric
from pyquant.study.task import Outcome, Progress, Task

PROGRESS_EVERY = 0.2  # seconds


def perform(task: Task, threads: int | None, progress_file: Path) -> Outcome:
    """Do a task.

    progress_file: a small file that says how far the task is, from its begin on. It works as well from a node
    of a cluster.
    """
    begin = time.perf_counter()
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    forget_peak()
    report = _reporter(progress_file)
    report(0.0, "")
    with _warnings() as warnings:
        results = Metric.registry[task.metric].run(task, threads, report)
    return Outcome(
        results,
        {
            "started": started,
            "seconds": time.perf_counter() - begin,
            "peak_memory": peak_memory(),
            "threads": threads,
            "host": platform.node(),
            "cpu": cpu_name(),
            "warnings": sorted(set(warnings)),
            "environment": environment(),
        },
    )


@contextmanager
def _warnings() -> Iterator[list[str]]:
    # llama.cpp's warnings are kept; on a worker's stderr they would be lost, or between lines of progress.
    heard: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    logger = logging.getLogger("pyquant.llama")
    listener, propagate = Listener(logging.WARNING), logger.propagate
    logger.addHandler(listener)
    logger.propagate = False
    try:
        yield heard
    finally:
        logger.removeHandler(listener)
        logger.propagate = propagate


def _reporter(file: Path) -> Progress:
    last = 0.0

    def report(share: float, what: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PROGRESS_EVERY:
            last = now
            with suppress(OSError):
                beside = file.with_suffix(f".{os.getpid()}")
                beside.write_text(json.dumps([share, what]))
                beside.replace(file)

    return report
