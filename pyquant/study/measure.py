"""What a study measures, as it happens in a worker: each kind of task is about one call of the library."""

from __future__ import annotations

import json
import logging
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pyquant.calibration.calibrate import calibrate_model
from pyquant.environment import environment
from pyquant.evaluate.compare import compare_models
from pyquant.evaluate.speed import measure_speed
from pyquant.files.output_file import write_bytes
from pyquant.fit.learn_tables import learn_tables
from pyquant.fit.measure_sensitivity import measure_sensitivity
from pyquant.inspect.histogram import count_codes
from pyquant.machine import cpu_name, forget_peak, peak_memory
from pyquant.schemes import Mode
from pyquant.study.size import find_step, make, size_of
from pyquant.study.store import Run

PROGRESS_EVERY = 0.2  # seconds

# (share done, what is at work)
Report = Callable[[float, str], None]


@dataclass(frozen=True)
class Task:
    """Work for one worker, with one result for each of its runs.

    kind: one of KINDS. modes: of what is measured, None for the model itself; files: where these
    models are, or what else comes out. runs: what is missing of the results, for each of `modes` one
    or None. cost: about how long it takes, in tokens times weights. after: names of the tasks that make
    its files. options: what else the library's function is called with.
    """

    name: str
    kind: str
    model: Path
    modes: tuple[Mode | None, ...]
    files: tuple[Path, ...]
    runs: tuple[Run | None, ...]
    cost: float = 0.0
    after: frozenset[str] = frozenset()
    text: Path | None = None
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Outcome:
    """results: for each of the task's modes. provenance: where and how long it was at work, in how much
    memory at most (in bytes, Python's included), and what llama.cpp warned of."""

    results: list[dict[str, Any]]
    provenance: dict[str, Any]


def perform(task: Task, threads: int | None, progress_file: Path) -> Outcome:
    """Does a task, here and now. Raises PyquantError."""
    begin = time.perf_counter()
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    measure = {
        "calibrate": _calibrate,
        "learn": _learn,
        "sensitivity": _sensitivity,
        "codes": _codes,
        "size": _size,
        "quality": _quality,
        "speed": _speed,
    }[task.kind]
    forget_peak()
    with _warnings() as warnings:
        results = measure(task, threads, _reporter(progress_file))
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


def _codes(task: Task, threads: int | None, report: Report) -> list[dict[str, Any]]:
    (mode,) = task.modes
    found = count_codes(task.model, mode, threads=threads, progress=_bytes(report)).to_json()
    kept = ("name", "type", "n_codes", "entropy", "zero_share")
    return [
        {
            "totals": found["totals"],
            "tensors": [
                {**{key: tensor[key] for key in kept}, "isolated_share": tensor["zero_runs"]["shares"][0]}
                for tensor in found["tensors"]
            ],
            "not_counted": found["skipped"],
        }
    ]


def _calibrate(task: Task, threads: int | None, report: Report) -> list[dict[str, Any]]:
    stats, imatrix = task.files
    done = calibrate_model(
        task.model,
        output=stats,
        imatrix=imatrix,
        threads=threads,
        force=True,
        progress=_chunks(report),
        **dict(task.options),
    ).to_json()
    return [{key: done[key] for key in ("n_ctx", "n_tokens", "n_matrices", "n_inputs", "output_bytes")}]


def _learn(task: Task, threads: int | None, report: Report) -> list[dict[str, Any]]:
    found = learn_tables(task.model, threads=threads, progress=_bytes(report), **dict(task.options))
    write_bytes(task.files[0], found.to_toml().encode(), sources=[], force=True)
    by_name = {name: values.tolist() for name, values in found.by_name.items()}
    return [{"values": found.values.tolist(), "tables": by_name}]


def _sensitivity(task: Task, threads: int | None, report: Report) -> list[dict[str, Any]]:
    found = measure_sensitivity(
        task.model,
        threads=threads,
        progress=lambda done, total: report(done / total, f"kind of tensor {done} of {total}"),
        **dict(task.options),
    )
    write_bytes(task.files[0], found.to_toml().encode(), sources=[], force=True)
    return [{"by_kind": dict(found.by_kind)}]


def _size(task: Task, threads: int | None, report: Report) -> list[dict[str, Any]]:
    (mode,), (file,) = task.modes, task.files
    if mode is None:
        return [size_of(file)]
    folder = file.parents[1]
    here = {
        key: path.relative_to(folder)
        for key in ("calibration", "imatrix")
        if (path := getattr(mode, key)) and path.is_relative_to(folder)
    }
    with _inside(folder):
        mode = mode.model_copy(update=here)
        if task.options:
            mode = find_step(task.model, mode, file, task.text, report, threads=threads, **dict(task.options))
        return [make(task.model, mode, file, threads, _bytes(report))]


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    # A model says which statistics it was made with: where the folder is must not decide about its bytes.
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _quality(task: Task, threads: int | None, report: Report) -> list[dict[str, Any]]:
    base, *others = task.files
    found = compare_models(
        base,
        others,
        task.text,
        threads=threads,
        progress=_chunks(report),
        **dict(task.options),
    ).to_json()
    of_all = {key: found[key] for key in ("n_ctx", "n_chunks", "n_tokens", "noise_floor")}
    one_each = [found["base"], *found["candidates"]]
    return [{**of_all, **{key: one[key] for key in one if key != "model"}} for one in one_each]


def _speed(task: Task, threads: int | None, report: Report) -> list[dict[str, Any]]:
    found = measure_speed(
        task.files,
        threads=threads,
        progress=lambda done, total: report(done / total, f"measurement {done} of {total}"),
        **dict(task.options),
    ).to_json()
    return [
        {"n_threads": found["n_threads"], "prompt": one["prompt"], "generation": one["generation"]}
        for one in found["models"]
    ]


@contextmanager
def _warnings() -> Iterator[list[str]]:
    # Of llama.cpp; on a worker's stderr they would be lost, or between the lines of the progress.
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


def _reporter(file: Path) -> Report:
    # Through a small file, so that it works as well from a node of a cluster.
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


def _bytes(report: Report) -> Callable[[int, int, str], None]:
    return lambda done, total, tensor: report(done / max(total, 1), tensor)


def _chunks(report: Report) -> Callable[[int, int], None]:
    return lambda done, total: report(done / total, f"chunk {done} of {total}")
