"""What a study measures, as it happens in a worker: each kind of task is one call of the library."""

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

from pyquant.compare import compare_models
from pyquant.histogram import count_codes
from pyquant.info import environment
from pyquant.model_file import ModelFile
from pyquant.quantize import quantize_model
from pyquant.schemes import Mode
from pyquant.speed import measure_speed
from pyquant.study.store import Run

PROGRESS_EVERY = 0.2  # seconds

# (share done, what is at work)
Report = Callable[[float, str], None]


@dataclass(frozen=True)
class Task:
    """Work for one worker, with one result for each of its runs.

    kind: codes, size, quality or speed. modes: of what is measured, None for the model itself;
    files: where these models are. runs: what is missing of the results, for each of `modes` one or
    None. cost: about how long it takes, in tokens times weights. after: names of the tasks that make
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
    """results: for each of the task's modes. provenance: where and how long it was at work, and what
    llama.cpp warned of."""

    results: list[dict[str, Any]]
    provenance: dict[str, Any]


def perform(task: Task, threads: int | None, progress_file: Path) -> Outcome:
    """Does a task, here and now. Raises PyquantError."""
    begin = time.perf_counter()
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    measure = {"codes": _codes, "size": _size, "quality": _quality, "speed": _speed}[task.kind]
    with _warnings() as warnings:
        results = measure(task, threads, _reporter(progress_file))
    return Outcome(
        results,
        {
            "started": started,
            "seconds": time.perf_counter() - begin,
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


def _size(task: Task, threads: int | None, report: Report) -> list[dict[str, Any]]:
    (mode,), (file,) = task.modes, task.files
    about: dict[str, Any] = {"parameters": {}, "rmse": None, "snr_db": None, "zero_share": None}
    if mode is not None:
        mode = mode.model_copy(update={"threads": threads})
        done = quantize_model(task.model, file, mode, force=True, progress=_bytes(report)).to_json()
        about = {key: done[key] for key in about}
    return [about | size_of(ModelFile(file))]


def size_of(model: ModelFile) -> dict[str, Any]:
    """A model file's size: all its bytes, and bits per weight of its tensors."""
    n_bytes = sum(tensor.n_bytes for tensor in model.tensors)
    types: dict[str, int] = {}
    for tensor in model.tensors:
        types[tensor.type.name] = types.get(tensor.type.name, 0) + tensor.n_weights
    return {
        "bytes": model.n_bytes,
        "sha256": model.sha256(),
        "n_weights": model.n_weights,
        "weights_by_type": dict(sorted(types.items())),
        "bits_per_weight": 8 * n_bytes / model.n_weights,
    }


def _quality(task: Task, threads: int | None, report: Report) -> list[dict[str, Any]]:
    base, *others = task.files
    found = compare_models(
        base,
        others,
        task.text,
        threads=threads,
        progress=lambda done, total: report(done / total, f"chunk {done} of {total}"),
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


def cpu_name() -> str:
    """As the system calls it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
