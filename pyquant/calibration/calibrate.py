"""Calibrate: run a model over texts and write the Hessian statistics of what enters its matrices."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from pyquant import _core, limits
from pyquant.calibration.collect import BrokenInput, learn_inputs, list_work, spool, spool_key
from pyquant.calibration.collect import run as run_over
from pyquant.calibration.gradients.kept_sums import KeptSums
from pyquant.calibration.gradients.output_hessians import Gradients, output_hessians
from pyquant.calibration.hessian_file import CalibrationText, Origin, make_header
from pyquant.calibration.imatrix import write_imatrix
from pyquant.calibration.random_tokens import RANDOM_SHARE, RANDOM_TOKENS, random_chunks
from pyquant.calibration.residual_stream import stream_lengths
from pyquant.calibration.sample import sample_chunks, spread, thinned
from pyquant.calibration.sources import BuiltIn
from pyquant.calibration.sums import forget, importance_of, not_finite, squares_of_texts, write_sums
from pyquant.calibration.text_moments import TextMoments
from pyquant.calibration.wanted import Progress, chunks_of, wanted_texts
from pyquant.files.output_file import OutputFile, check_output
from pyquant.files.text import Text
from pyquant.llama.chunks import BATCH, Chunks, make_context
from pyquant.llama.model import Model
from pyquant.llama.offload import say_once
from pyquant.machine.cpu import n_threads
from pyquant.models.model_file import AnyModel, open_model
from pyquant.models.tensor import file_bytes
from pyquant.models.type_policy import quantizable

DEFAULT_CTX = 512
CHECKPOINT_SECONDS = 120
GRADIENTS, RUNNING = "gradients", "calibration"  # what progress calls them, and the run over all chunks


@dataclass(frozen=True)
class CalibrationResult:
    """Result of a calibration.

    Attributes
    ----------
    model, output
        Paths.
    sha256
        The hash of the model.
    texts
        What the model was run over.
    n_ctx, n_tokens
        Tokens in a chunk, and of all chunks.
    n_matrices, n_inputs
        Matrices whose inputs were collected, and the inputs that they share.
    left_out
        Matrices whose inputs are not finite, or so large that their squares are not.
    sums_bytes
        The size of the sums, in memory or spooled.
    output_bytes
        The size of `output`.
    resumed_at
        The batch where an interrupted run was taken up, or 0.
    seconds
        What running took, loading excluded.
    copying_seconds, waiting_seconds
        How long of that passes on a GPU stood still for copies of activations to the CPU, and for sums: of
        copies before, or on the GPU.
    """

    model: str
    output: str
    sha256: str
    texts: list[CalibrationText]
    n_ctx: int
    n_tokens: int
    n_matrices: int
    n_inputs: int
    left_out: list[str]
    sums_bytes: int
    output_bytes: int
    resumed_at: int
    seconds: float
    copying_seconds: float
    waiting_seconds: float

    def to_json(self) -> dict[str, Any]:
        """Give the result as `pyquant calibrate --json` prints it, schema pyquant.calibrate/1."""
        return {"schema": "pyquant.calibrate/1", **asdict(self)}


def calibrate_model(
    model: AnyModel,
    texts: Sequence[str | os.PathLike[str] | Text | BuiltIn] | None,
    output: str | os.PathLike[str],
    *,
    weights: Sequence[float] | None = None,
    n_ctx: int | None = None,
    n_chunks: int | None = None,
    threads: int | None = None,
    memory: int | None = None,
    imatrix: str | os.PathLike[str] | None = None,
    imatrix_only: bool = False,
    diagonal_chunks: int | None = None,
    process_output: bool = False,
    output_side: int | None = None,
    output_side_of: Collection[str] | None = None,
    random: float = RANDOM_SHARE,
    sums_on_gpu: bool = True,
    force: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    progress: Progress | None = None,
) -> CalibrationResult:
    """Run a model over texts and write the Hessian statistics of what enters its matrices.

    A call that is interrupted leaves its sums behind, and the same call takes them up again.

    Parameters
    ----------
    model
        A path, or an opened model.
    texts
        Paths, texts that were read, or some of `pyquant.calibration.sources`; None: a mixture of these, for
        any text.
    output
        The Hessian file to write. It appears complete or not at all.
    weights
        How much each text's tokens count; None: all alike.
    n_ctx
        Tokens in a chunk; None: 512, or fewer if the model was trained with fewer.
    n_chunks
        Only the first chunks of each text, of the mixture so many in all; None: all, of what has no end 128.
    threads
        None: one for each core.
    memory
        Bytes that sums may take in memory; the others are spooled beside `output`. None: all of them.
    imatrix
        Where to write an importance matrix as llama-imatrix would.
    imatrix_only
        Collect sums of squares alone, the diagonals of Hessians. GPTQ then collects Hessians while it rounds.
    diagonal_chunks
        With `imatrix_only`: run over so many chunks alone, at even distances, each counting for several, with
        products in BF16 where they are quicker. The tokens of all are kept. None: over all.
    process_output
        Collect the output matrix's input as well.
    output_side
        Also collect output-side Hessians (YAQA), of gradients over so many chunks of the texts; None: not.
        Of Llama and Qwen without experts.
    output_side_of
        Names of the matrices that these are of; None: all of layers.
    random
        The share of tokens that are drawn at random from the vocabulary: they show directions that texts
        leave out. They enter the Hessians, but neither the sums of squares nor `imatrix`.
    sums_on_gpu
        Let a GPU sum up Hessians where it computes the inputs, as far as it has memory; not of experts.
    force
        Replace existing files.
    checkpoint_seconds
        How often sums are made safe against an interruption.
    progress
        Called with what is done (WRITING, GRADIENTS, RUNNING), and its steps done and all.

    Raises
    ------
    ModelFileError
        The model cannot be read or run.
    TextError
        A text cannot be read, or is shorter than a chunk.
    ConfigError
        A parameter is out of its range.
    OutputError
        A file cannot be written.
    RuntimeLibraryError
        llama_cpp is missing, or uses another library.
    """
    source, output = open_model(model), Path(output)
    imatrix = Path(imatrix) if imatrix else None
    wanted = wanted_texts(texts, weights, n_chunks)
    limits.SHARE.check("random", random)
    if output_side is not None:
        limits.SEQUENCES.check("output_side", output_side)
    files = [wish.text.path for wish in wanted if isinstance(wish.text, Text)]
    for path in [output, *([imatrix] if imatrix else [])]:
        check_output(path, sources=[*source.paths, *files], force=force)
    whole = set() if imatrix_only else quantizable(source)  # matrices whose whole Hessians are wanted
    collector = _core.Collector(
        whole, with_output=process_output, n_threads=n_threads(threads), on_device=sums_on_gpu,
        allows_bf16=bool(imatrix_only and diagonal_chunks),
    )  # fmt: skip
    with ExitStack() as stack, Model(source) as running:
        n_ctx = n_ctx or min(DEFAULT_CTX, running.n_ctx_train)
        limits.CALIBRATION_CTX.check("ctx", n_ctx)
        cuts = chunks_of(wanted, running, n_ctx, threads, progress)
        used = [wish.of(chunks) for wish, chunks in zip(wanted, cuts)]
        weights = [wish.weight for wish in wanted]
        n_of_texts = len(list_work(cuts, weights))
        if random > 0:
            chunks, weight = random_chunks(running, cuts, weights, random)
            used.append(CalibrationText(RANDOM_TOKENS, "", weight, chunks.n_chunks))
            cuts, weights = [*cuts, chunks], [*weights, weight]
        kept = sample_chunks([chunks.tokens for chunks in cuts], weights)
        origin = Origin(source.sha256(), n_ctx, used)
        streams = stream_lengths(running, cuts[0], threads)
        followed = Gradients({}, {})
        left_out: list[str] = []
        if output_side is not None:
            of_texts = np.concatenate([chunks.tokens for chunks in cuts[: len(wanted)]])
            chosen = Chunks(spread(of_texts, output_side))
            kept_sums = KeptSums(output, origin.sha256, chosen, checkpoint_seconds, output_side_of)
            stack.enter_context(kept_sums.keeping())
            followed = output_hessians(
                running, chosen, kept_sums, wanted=output_side_of, threads=threads,
                progress=progress and partial(progress, GRADIENTS),
            )  # fmt: skip
        if imatrix_only and diagonal_chunks:
            cuts, weights = thinned(cuts[: len(wanted)], weights[: len(wanted)], diagonal_chunks)
            n_of_texts = len(list_work(cuts, weights))
        work = list_work(cuts, weights)
        with make_context(running, n_ctx, threads=threads, n_ubatch=BATCH, observer=collector) as context:
            logits = learn_inputs(context, cuts[0], collector)
            n_out = {name: len(hessian) for name, hessian in followed.hessians.items()}
            several = len(wanted) > 1
            header_of = partial(
                make_header, origin, streams=streams, gradients=followed.squares, n_kept=len(kept),
                several_texts=several, n_out=n_out,
            )  # fmt: skip
            inputs = collector.inputs
            header = header_of(inputs, not_finite=left_out)
            n_bytes = file_bytes(header)
            key = spool_key(origin, work, collector, process_output)
            with (
                OutputFile(output, n_bytes, sources=source.paths, force=force) as file,
                spool(output, n_bytes, key, memory, collector),
            ):
                begin = time.perf_counter()
                resumed_at = collector.batch
                told = progress and partial(progress, RUNNING)
                run = partial(run_over, context, work, collector, checkpoint_seconds, told, source, logits)
                moments = TextMoments(output, collector, key)
                if several and not imatrix_only:
                    for end in accumulate(chunks.n_groups for chunks in cuts[: len(wanted)]):
                        run(until=end)
                        moments.end_text(end)
                run(until=n_of_texts)
                # Spooled too, as an interrupted run may go on after this point.
                squares = squares_of_texts(output, collector, n_of_texts)
                run(until=n_of_texts if imatrix_only else len(work))
                if broken := not_finite(collector):
                    left_out = [matrix for i in broken for matrix in i.matrices]
                    inputs = [i for i in collector.inputs if i.matrices[0] not in left_out]
                    if not inputs:
                        raise BrokenInput(source, broken[0])
                    header = header_of(inputs, not_finite=left_out)
                    n_bytes = file_bytes(header)
                    os.ftruncate(file.fileno(), n_bytes)
                write_sums(
                    file, header, collector, inputs, squares, kept, moments.shares(inputs), followed.hessians
                )
                if imatrix:
                    importance = importance_of(inputs, squares)
                    write_imatrix(
                        imatrix, importance, datasets=[text.path for text in used if text.sha256],
                        chunk_size=n_ctx, sources=source.paths, force=force,
                    )  # fmt: skip
                file.commit()
                seconds = time.perf_counter() - begin
            forget(output)
    if collector.left_to_cpu:
        say_once(f"{source.path}: {collector.left_to_cpu}: the CPU makes others")
    copying, waiting = collector.waited
    return CalibrationResult(
        model=str(source.path),
        output=str(output),
        sha256=origin.sha256,
        texts=used,
        n_ctx=n_ctx,
        n_tokens=origin.n_tokens,
        n_matrices=sum(len(i.matrices) for i in inputs),
        n_inputs=len(inputs),
        left_out=left_out,
        sums_bytes=4 * sum(collector.sizes),
        output_bytes=n_bytes,
        resumed_at=resumed_at,
        seconds=seconds,
        copying_seconds=copying,
        waiting_seconds=waiting,
    )
