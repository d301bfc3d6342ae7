"""Calibrate: run a model over texts and write the Hessian statistics of what enters its matrices."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from pyquant import _core, limits
from pyquant.calibration.calibration_result import CalibrationResult
from pyquant.calibration.collect import BrokenInput, learn_inputs, spool, spool_key
from pyquant.calibration.collect import run as run_over
from pyquant.calibration.gradients.kept_sums import KeptSums
from pyquant.calibration.gradients.output_hessians import Gradients, output_hessians
from pyquant.calibration.hessian_file import CalibrationText, Origin, make_header
from pyquant.calibration.imatrix import write_imatrix
from pyquant.calibration.random_tokens import RANDOM_SHARE, RANDOM_TOKENS
from pyquant.calibration.residual_stream import stream_lengths
from pyquant.calibration.run_tokens import RunTokens
from pyquant.calibration.sample import sample_chunks
from pyquant.calibration.sources import BuiltIn
from pyquant.calibration.sums import Squares, forget, importance_of, not_finite, squares_of_texts, write_sums
from pyquant.calibration.text_moments import TextMoments
from pyquant.calibration.wanted import Progress, chunks_of, evened, wanted_texts
from pyquant.errors import Tell
from pyquant.files.output_file import OutputFile, check_apart, check_output
from pyquant.files.text import Text
from pyquant.llama.chunks import BATCH, make_context
from pyquant.llama.model import Model
from pyquant.llama.offload import say_once
from pyquant.machine.cpu import n_threads
from pyquant.models.model_file import AnyModel, open_model
from pyquant.models.tensor import file_bytes
from pyquant.models.type_policy import quantizable

DEFAULT_CTX = 512
CHECKPOINT_SECONDS = 120
GRADIENTS, RUNNING = "gradients", "calibration"  # what progress calls them, and the run over all chunks


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
    called: Path | None = None,
    sums_on_gpu: bool = True,
    force: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    progress: Progress | None = None,
    tell: Tell | None = None,
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
        How much each text's tokens count beside the others'; None: all alike.
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
    called
        What files that are made by a temporary `output` are to say of it; None: its path.
    sums_on_gpu
        Let a GPU sum up Hessians where it computes the inputs, as far as it has memory; not of experts.
    force
        Replace existing files.
    checkpoint_seconds
        How often sums are made safe against an interruption.
    progress
        Called with what is done (WRITING, GRADIENTS, RUNNING), and its steps done and all.
    tell
        Told what sums and file take, before texts are run over, and what is there and not used.

    Raises
    ------
    ModelFileError
        The model cannot be read or run.
    TextError
        A text cannot be read, or is shorter than a chunk.
    ConfigError
        A parameter is out of its range.
    NotEnoughMemory
        Sums take more than there is.
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
    if imatrix:
        check_apart(imatrix, output)
    whole = set() if imatrix_only else quantizable(source)  # matrices whose whole Hessians are wanted
    collector = _core.Collector(
        whole, with_output=process_output, n_threads=n_threads(threads), on_device=sums_on_gpu,
        allows_bf16=bool(imatrix_only and diagonal_chunks),
    )  # fmt: skip
    with ExitStack() as stack, Model(source) as running:
        n_ctx = n_ctx or min(DEFAULT_CTX, running.n_ctx_train)
        limits.CALIBRATION_CTX.check("ctx", n_ctx)
        cuts = chunks_of(wanted, running, n_ctx, threads, progress)
        if weights:
            wanted = evened(wanted, cuts)
        used = [wish.of(chunks) for wish, chunks in zip(wanted, cuts)]
        tokens = RunTokens(cuts, [wish.weight for wish in wanted], len(wanted))
        if random > 0:
            tokens = tokens.with_random(running, random)
            used.append(CalibrationText(RANDOM_TOKENS, "", tokens.weights[-1], tokens.chunks[-1].n_chunks))
        kept = sample_chunks([chunks.tokens for chunks in tokens.chunks], tokens.weights)
        origin = Origin(source.sha256(), n_ctx, used)
        streams = stream_lengths(running, cuts[0], threads)
        followed = Gradients({}, {})
        if output_side is not None:
            chosen = tokens.spread(output_side)
            kept_sums = KeptSums(output, origin.sha256, chosen, checkpoint_seconds, output_side_of, tell=tell)
            stack.enter_context(kept_sums.keeping())
            followed = output_hessians(
                running, chosen, kept_sums, wanted=output_side_of, threads=threads,
                progress=progress and partial(progress, GRADIENTS),
            )  # fmt: skip
        if imatrix_only and diagonal_chunks:
            tokens = tokens.thinned(diagonal_chunks)
        with make_context(running, n_ctx, threads=threads, n_ubatch=BATCH, observer=collector) as context:
            logits = learn_inputs(context, tokens.chunks[0], collector)
            header_of = partial(
                make_header, origin, streams=streams, gradients=followed.squares, n_kept=len(kept),
                several_texts=len(wanted) > 1,
                n_out={name: len(hessian) for name, hessian in followed.hessians.items()}, called=called,
            )  # fmt: skip
            n_bytes = file_bytes(header_of(collector.inputs, not_finite=[]))
            key = spool_key(origin, tokens.work, collector, process_output)
            with (
                OutputFile(output, n_bytes, sources=source.paths, force=force) as file,
                spool(output, n_bytes, key, memory, collector, threads, tell),
            ):
                begin = time.perf_counter()
                resumed_at = collector.batch
                told = progress and partial(progress, RUNNING)
                run = partial(
                    run_over, context, tokens.work, collector, checkpoint_seconds, told, source, logits
                )
                moments = TextMoments(output, collector, key)
                squares = _sum_up(run, tokens, collector, moments, output, whole=not imatrix_only)
                broken = not_finite(collector)
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
                    write_imatrix(
                        imatrix, importance_of(inputs, squares),
                        datasets=[text.path for text in used if text.sha256], chunk_size=n_ctx,
                        sources=source.paths, force=force,
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


def _sum_up(
    run: Callable[..., None],
    tokens: RunTokens,
    collector: _core.Collector,
    moments: TextMoments,
    output: Path,
    *,
    whole: bool,
) -> Squares:
    """Run over all tokens; returns the sums of squares over texts. whole: whether Hessians are summed up."""
    n_of_texts = tokens.n_of_texts
    if whole and tokens.n_texts > 1:
        for end in tokens.ends:
            run(until=end)
            moments.end_text(end)
    run(until=n_of_texts)
    # Spooled too, as an interrupted run may go on after this point.
    squares = squares_of_texts(output, collector, n_of_texts)
    run(until=len(tokens.work) if whole else n_of_texts)
    return squares
