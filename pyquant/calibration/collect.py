"""Run a model over chunks of tokens while a collector sums up what enters its matrices."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant import _core, limits
from pyquant.calibration.hessian_file import Origin
from pyquant.calibration.sums import forget, not_finite
from pyquant.errors import ConfigError, ModelFileError, NotEnoughMemory, OutputError, Tell
from pyquant.files.kept import keeping, not_used
from pyquant.llama.check_logits import check_logits
from pyquant.llama.chunks import BATCH, Chunks, portions, together
from pyquant.llama.context import Context
from pyquant.machine.cpu import n_threads
from pyquant.machine.environment import build_and_cpu
from pyquant.machine.memory import available_memory, require_memory
from pyquant.models.model_file import ModelFile

# Called with the chunks done, and the chunks of all.
Progress = Callable[[int, int], None]


class BrokenInput(ModelFileError):
    """What enters all matrices, or all from one on, is not finite, or so large that its squares are not."""

    def __init__(self, source: ModelFile, first: _core.Input) -> None:
        super().__init__(f"{source.path}: what enters {first.matrices[0]} is not finite, or too large")


@dataclass(frozen=True)
class Work:
    """A group of chunks that are computed together.

    chunks, group: the group-th of a text. weight: of its tokens. n_done: chunks done with it.
    """

    chunks: Chunks
    group: int
    weight: float
    n_done: int


def list_work(cuts: list[Chunks], weights: list[float]) -> list[Work]:
    """List the work of all texts, in order."""
    work, before = [], 0
    for chunks, weight in zip(cuts, weights):
        for group in range(chunks.n_groups):
            done = min(chunks.n_chunks, (group + 1) * together(chunks.n_ctx))
            work.append(Work(chunks, group, weight, before + done))
        before += chunks.n_chunks
    return work


def learn_inputs(context: Context, chunks: Chunks, collector: _core.Collector) -> NDArray[np.float32]:
    """Learn which inputs there are, and so how much room their sums take, from a few tokens.

    Returns: the logits of these tokens; later passes stop at the last matrix that is collected.
    Raises ModelFileError: the model has no matrices in blocks.
    """
    tokens = chunks.tokens[:1, : int(limits.CALIBRATION_CTX.low)]
    context.clear()
    logits = context.decode(tokens, 0, np.ones(tokens.shape[1], bool)).copy()
    collector.rethrow()
    if not collector.inputs:
        raise ModelFileError(f"{context.model.path}: has no matrices in blocks, whose inputs are collected")
    return logits


def run(
    context: Context,
    work: list[Work],
    collector: _core.Collector,
    checkpoint_seconds: float,
    progress: Progress | None,
    source: ModelFile,
    logits: NDArray[np.float32],
    *,
    until: int,
) -> None:
    """Do the work from where the collector is up to `until`, with checkpoints.

    logits: what `learn_inputs` gave. They are checked behind a batch, which tells the first matrix where a
    model breaks.
    Raises ModelFileError: llama.cpp cannot run the model. BrokenInput: logits are not finite, nor what enters
    matrices.
    """
    saved = time.monotonic()
    for batch in range(collector.batch, until):
        unit = work[batch]
        try:
            for tokens, positions in portions(context, unit.chunks, unit.group):
                collector.set_pass(weight=unit.weight, n_begun=0 if positions[0] else len(tokens))
                try:
                    context.decode(tokens, positions[0], np.ones(len(positions), bool))
                finally:
                    collector.rethrow()
        except RuntimeError as error:
            raise ModelFileError(f"{source.path}: {error} (batch {batch} of {len(work)})") from None
        try:
            check_logits(source.path, logits, "its first tokens")
        except ModelFileError:
            collector.fetch()
            if broken := not_finite(collector):
                raise BrokenInput(source, broken[0]) from None
            raise
        if progress:
            progress(unit.n_done, work[-1].n_done)
        if time.monotonic() - saved >= checkpoint_seconds:
            collector.checkpoint(batch + 1)
            saved = time.monotonic()
    collector.fetch()


def spool_key(origin: Origin, work: list[Work], collector: _core.Collector, process_output: bool) -> bytes:
    """Hash all that decides what is spooled."""
    run = [asdict(origin), work[-1].n_done, BATCH, process_output]
    contents = [*run, collector.sizes, build_and_cpu()]
    return hashlib.sha256(json.dumps(contents).encode()).digest()


@contextlib.contextmanager
def spool(
    output: Path,
    output_bytes: int,
    key: bytes,
    memory: int | None,
    collector: _core.Collector,
    threads: int | None,
    tell: Tell | None,
) -> Iterator[None]:
    """Keep a file for the sums while they are made. If the run fails it stays, for the next run.

    tell: told what they take, and of a file that is not used.
    Raises ConfigError: `memory` is less than the sums of one input need. NotEnoughMemory: there is less.
    OutputError: there is no room.
    """
    sums, largest = 4 * sum(collector.sizes), 4 * max(collector.sizes, default=0)
    memory = sums if memory is None else memory
    if memory < largest:
        raise ConfigError(f"memory: {memory:,} bytes; the sums of one input need {largest:,}")
    what, in_memory = f"the sums of what enters matrices, for {output}", min(sums, memory)
    require_memory(in_memory, what, blas=n_threads(threads))
    free = available_memory()
    if free is not None and in_memory > free:
        raise NotEnoughMemory(
            f"not enough memory for {what}: {_mb(in_memory)} are needed, and {_mb(free)} are available; "
            f"--memory SIZE keeps the rest on disk, and --imatrix-only sums up diagonals alone"
        )
    if tell:
        tell(
            f"sums: {_mb(in_memory)} in memory, {_mb(sums - in_memory)} on disk; {output} will be of "
            f"{_mb(output_bytes)}"
        )
    path = output.with_name(f".{output.name}.spool")
    try:
        there = path.exists()
        with keeping(path, "the sums so far"), path.open("r+b" if there else "w+b") as file:
            goes_on = collector.start(memory=memory, file=file.fileno(), key=key)  # type: ignore[arg-type] # bytes
            if there and not goes_on and tell:
                tell(not_used(path))
            if shutil.disk_usage(output.parent).free < output_bytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            path.unlink(missing_ok=True)
            forget(output)
            raise OutputError(
                f"{output}: no room: the sums need {sums:,} bytes beside it while they are made, and it "
                f"{output_bytes:,}; {shutil.disk_usage(output.parent).free:,} are free in {output.parent}"
            ) from None
        raise OutputError(f"{path}: {error.strerror}") from None
    path.unlink()


def _mb(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:,.0f} MB"
