"""Running a model over texts to see what enters its matrices."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant import _core, limits
from pyquant.calibration.imatrix import write_imatrix
from pyquant.calibration.random_tokens import RANDOM_SHARE, RANDOM_TOKENS, random_chunks
from pyquant.calibration.sample import sample_chunks
from pyquant.calibration.stats_file import TOKENS, CalibrationText, Origin, make_header
from pyquant.errors import ConfigError, ModelFileError, OutputError
from pyquant.files.output_file import OutputFile, check_output
from pyquant.files.text import Text, read_text
from pyquant.llama.chunks import BATCH, Chunks, cut, make_context, portions, together
from pyquant.llama.model import Context, Model
from pyquant.machine import n_threads
from pyquant.models.model_file import AnyModel, ModelFile, open_model
from pyquant.models.tensor import padded
from pyquant.models.type_policy import quantizable

DEFAULT_CTX = 512
CHECKPOINT_SECONDS = 120

# By name, sums of squares (n_groups, n_in) and tokens that are in them (n_groups,).
Squares = dict[str, tuple[NDArray[np.float32], NDArray[np.float64]]]

# (chunks done, all chunks)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class CalibrationResult:
    """What a calibration did. sha256: of the model. n_tokens: that it was given. n_matrices: whose
    inputs were collected; they share n_inputs. sums_bytes: of these, in memory or spooled. resumed_at:
    the batch where an interrupted run was taken up, or 0. seconds: of running, loading excluded.
    """

    model: str
    output: str
    sha256: str
    texts: list[CalibrationText]
    n_ctx: int
    n_tokens: int
    n_matrices: int
    n_inputs: int
    sums_bytes: int
    output_bytes: int
    resumed_at: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return {"schema": "pyquant.calibrate/1", **asdict(self)}


@dataclass(frozen=True)
class _Work:
    """A group of chunks that are computed together: the group-th of a text."""

    chunks: Chunks
    group: int
    weight: float
    n_done: int  # chunks, when it is done


def calibrate_model(
    model: AnyModel,
    texts: Sequence[str | os.PathLike[str] | Text],
    output: str | os.PathLike[str],
    *,
    weights: Sequence[float] | None = None,
    n_ctx: int | None = None,
    n_chunks: int | None = None,
    threads: int | None = None,
    memory: int | None = None,
    imatrix: str | os.PathLike[str] | None = None,
    process_output: bool = False,
    random: float = RANDOM_SHARE,
    force: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    progress: Progress | None = None,
) -> CalibrationResult:
    """Runs a model over texts and writes the second moments of what enters its matrices to `output`.

    weights: how much each text's tokens count. n_ctx: tokens in a chunk; by default 512, or fewer if the
    model was trained with fewer. n_chunks: only the first ones of each text. memory: bytes that sums may
    take in memory, what is more is spooled beside `output`. imatrix: also writes what llama-imatrix
    would. process_output: collect the output matrix's input as well. random: the share of tokens drawn
    at random from the vocabulary in the moments (not in sums of squares or `imatrix`): they show
    directions that texts leave out. What an interrupted run left, the
    same call takes up: it spools every `checkpoint_seconds`.
    Raises ModelFileError, TextError, ConfigError, OutputError and RuntimeLibraryError.
    """
    source, output = open_model(model), Path(output)
    imatrix = Path(imatrix) if imatrix else None
    weights = _checked(texts, weights)
    limits.SHARE.check("random", random)
    read = [read_text(text) for text in texts]
    for path in [output, *([imatrix] if imatrix else [])]:
        check_output(path, sources=[*source.paths, *(text.path for text in read)], force=force)
    collector = _core.Collector(quantizable(source), with_output=process_output, n_threads=n_threads(threads))
    with Model(source.path) as running:
        n_ctx = n_ctx or min(DEFAULT_CTX, running.n_ctx_train)
        limits.CALIBRATION_CTX.check("ctx", n_ctx)
        cuts = [cut(running, text, n_ctx=n_ctx, n_chunks=n_chunks) for text in read]
        used = [
            CalibrationText(str(text.path), text.sha256, weight, chunks.n_chunks)
            for text, weight, chunks in zip(read, weights, cuts)
        ]
        n_of_texts = len(_work(cuts, weights))
        if random > 0:
            chunks, weight = random_chunks(running, cuts, weights, random)
            used.append(CalibrationText(RANDOM_TOKENS, "", weight, chunks.n_chunks))
            cuts, weights = [*cuts, chunks], [*weights, weight]
        work, kept = _work(cuts, weights), sample_chunks([chunks.tokens for chunks in cuts], weights)
        origin = Origin(source.sha256(), n_ctx, used)
        with make_context(running, n_ctx, threads=threads, n_ubatch=BATCH, observer=collector) as context:
            _learn(context, cuts[0], collector)
            header = make_header(origin, collector.inputs, n_kept=len(kept))
            n_bytes = len(header.header()) + sum(padded(size) for _, _, _, _, size in header.tensors())
            with (
                OutputFile(output, n_bytes, sources=source.paths, force=force) as file,
                _spool(output, n_bytes, _key(origin, collector, process_output), memory, collector),
            ):
                begin = time.perf_counter()
                resumed_at = collector.batch
                run = partial(_run, context, work, collector, checkpoint_seconds, progress, source)
                run(until=n_of_texts)
                # Spooled too, as an interrupted run may go on after this point.
                squares = _squares_of_texts(output, collector, n_of_texts)
                run(until=len(work))
                _write(file, header, collector, squares, kept)
                if imatrix:
                    write_imatrix(
                        imatrix, _importance(collector, squares), datasets=[str(text.path) for text in read],
                        chunk_size=n_ctx, sources=source.paths, force=force,
                    )  # fmt: skip
                file.commit()
                seconds = time.perf_counter() - begin
            _squares_file(output).unlink()
    return CalibrationResult(
        model=str(source.path),
        output=str(output),
        sha256=origin.sha256,
        texts=used,
        n_ctx=n_ctx,
        n_tokens=origin.n_tokens,
        n_matrices=sum(len(i.matrices) for i in collector.inputs),
        n_inputs=len(collector.inputs),
        sums_bytes=4 * sum(collector.sizes),
        output_bytes=n_bytes,
        resumed_at=resumed_at,
        seconds=seconds,
    )


def _checked(texts: Sequence[Any], weights: Sequence[float] | None) -> list[float]:
    if not texts:
        raise ConfigError("text: at least one is needed")
    weights = list(weights or [1.0] * len(texts))
    if len(weights) != len(texts):
        raise ConfigError(f"weight: {len(weights)} given for {len(texts)} texts; give one for each, in order")
    for weight in weights:
        limits.WEIGHT.check("weight", weight)
    return weights


def _learn(context: Context, chunks: Chunks, collector: _core.Collector) -> None:
    # A few tokens show which inputs there are, and so how much room their sums take.
    tokens = chunks.tokens[:1, : int(limits.CALIBRATION_CTX.low)]
    context.clear()
    context.decode(tokens, 0, np.ones(tokens.shape[1], bool))
    collector.rethrow()
    if not collector.inputs:
        raise ModelFileError(f"{context.model.path}: has no matrices in blocks, whose inputs are collected")


def _work(cuts: list[Chunks], weights: list[float]) -> list[_Work]:
    work, before = [], 0
    for chunks, weight in zip(cuts, weights):
        for group in range(chunks.n_groups):
            done = min(chunks.n_chunks, (group + 1) * together(chunks.n_ctx))
            work.append(_Work(chunks, group, weight, before + done))
        before += chunks.n_chunks
    return work


def _run(
    context: Context,
    work: list[_Work],
    collector: _core.Collector,
    checkpoint_seconds: float,
    progress: Progress | None,
    source: ModelFile,
    *,
    until: int,
) -> None:
    saved = time.monotonic()
    for batch in range(collector.batch, until):
        unit = work[batch]
        collector.set_weight(unit.weight)
        try:
            for tokens, positions in portions(context, unit.chunks, unit.group):
                context.decode(tokens, positions[0], np.ones(len(positions), bool))
                collector.rethrow()
        except (ValueError, RuntimeError) as error:
            raise ModelFileError(f"{source.path}: {error} (batch {batch} of {len(work)})") from None
        if progress:
            progress(unit.n_done, work[-1].n_done)
        if time.monotonic() - saved >= checkpoint_seconds:
            collector.checkpoint(batch + 1)
            saved = time.monotonic()


def _squares_file(output: Path) -> Path:
    return output.with_name(f".{output.name}.squares.npz")


def _squares_of_texts(output: Path, collector: _core.Collector, batch: int) -> Squares:
    """Sums of squares and counts before the first random token; read again by a run that goes on after
    it. By input, (n_groups, n_in) and (n_groups,)."""
    path = _squares_file(output)
    if collector.batch < batch or not path.exists():
        arrays = {}
        for i in collector.inputs:
            name = i.matrices[0]
            groups = range(i.n_groups)
            arrays[f"{name}.squares"] = np.stack([collector.sums(i, group)[: i.n_in] for group in groups])
            arrays[f"{name}.counts"] = np.array([collector.count(i, group) for group in groups])
        partial_file = path.with_name(f"{path.name}.partial")
        with partial_file.open("wb") as file:
            np.savez(file, **arrays)
        partial_file.replace(path)
        collector.checkpoint(batch)
    with np.load(path) as arrays:
        names = [i.matrices[0] for i in collector.inputs]
        return {name: (arrays[f"{name}.squares"], arrays[f"{name}.counts"]) for name in names}


def _key(origin: Origin, collector: _core.Collector, process_output: bool) -> bytes:
    """Of all that decides what is spooled."""
    build = _core.build_info()
    processor = [build["system"], _core.HAS_BF16_PRODUCTS]
    what = [asdict(origin), BATCH, process_output, collector.sizes, build["pyquant"], processor]
    return hashlib.sha256(json.dumps(what).encode()).digest()


@contextlib.contextmanager
def _spool(
    output: Path, output_bytes: int, key: bytes, memory: int | None, collector: _core.Collector
) -> Iterator[None]:
    """The sums' file while they are made. It stays behind if the run fails, for the next one."""
    sums, largest = 4 * sum(collector.sizes), 4 * max(collector.sizes, default=0)
    memory = sums if memory is None else memory
    if memory < largest:
        raise ConfigError(f"memory: {memory:,} bytes; the sums of one input need {largest:,}")
    path = output.with_name(f".{output.name}.spool")
    try:
        with path.open("r+b" if path.exists() else "w+b") as file:
            collector.start(memory=memory, file=file.fileno(), key=key)
            if shutil.disk_usage(output.parent).free < output_bytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            path.unlink(missing_ok=True)
            raise OutputError(
                f"{output}: no room: the sums need {sums:,} bytes beside it while they are made, and it "
                f"{output_bytes:,}; {shutil.disk_usage(output.parent).free:,} are free in {output.parent}"
            ) from None
        raise OutputError(f"{path}: {error.strerror}") from None
    path.unlink()


def _write(
    file: OutputFile,
    header: _core.Gguf,
    collector: _core.Collector,
    squares: Squares,
    kept: NDArray[np.int32],
) -> None:
    begin = header.header()
    file.write(begin, 0)
    at = {name: len(begin) + offset for name, _, _, offset, _ in header.tensors()}
    file.write(kept.tobytes(), at[TOKENS])
    for i in collector.inputs:
        name = i.matrices[0]
        for what, values in zip(("in_sum2", "counts"), squares[name]):
            file.write(values.tobytes(), at[f"{name}.{what}"])
        if not i.all_moments:
            continue
        counts = np.array([collector.count(i, group) for group in range(i.n_groups)])
        file.write(counts.tobytes(), at[f"{name}.moment_counts"])
        for group in range(i.n_groups):
            moments = memoryview(collector.sums(i, group)[i.n_in :]).cast("B")
            file.write(moments, at[f"{name}.moments"] + group * moments.nbytes)


def _importance(collector: _core.Collector, squares: Squares) -> Squares:
    """By matrix, as an importance matrix has it."""
    importance = {}
    for i in collector.inputs:
        sums, counts = squares[i.matrices[0]]
        # llama-imatrix counts per expert only where tokens are routed to them.
        importance |= dict.fromkeys(i.matrices, (sums, counts if i.routed else counts[:1]))
    return importance
