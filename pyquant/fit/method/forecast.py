"""What a method takes, said before its work: stages, time, memory and disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyquant.calibration.calibrate import GRADIENTS, RUNNING
from pyquant.calibration.gradients.llama_graph import gradient_memory, output_side_bytes, why_unknown
from pyquant.calibration.random_tokens import RANDOM_SHARE
from pyquant.calibration.sample import MOST_CHUNKS
from pyquant.calibration.wanted import WRITING
from pyquant.evaluate.kept_logits import bytes_in_memory
from pyquant.evaluate.memory import activation_memory, context_memory
from pyquant.fit.method.forecast_time import (
    BESIDE_PRODUCTS,
    COLLECTING,
    PROPAGATING,
    STAGED,
    Entered,
    collecting,
    correcting,
    n_products_backwards,
    n_trials,
    passes_of_mix,
    quantizing,
    rounding,
)
from pyquant.fit.method.held_out import HELD_OUT
from pyquant.fit.method.hessian import DIAGONAL_CHUNKS, MOST_BYTES, OUTPUT_SIDE_CHUNKS, output_side_matrices
from pyquant.fit.method.probe import Probe, products_per_second
from pyquant.fit.method.request import EVALUATION
from pyquant.fit.method.split_text import SplitText, widest_columns
from pyquant.fit.method.stages import BY_GPTQ, PROPAGATION_CHUNKS, SCALE_CHUNKS, stages_of
from pyquant.fit.method.types_for_size import MIX
from pyquant.llama.cache import cache_memory
from pyquant.llama.chunks import BATCH
from pyquant.machine.cpu import n_threads
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_name import EMBEDDINGS, kind_of
from pyquant.rounding.factors import BYTES
from pyquant.rounding.metadata import TRAINED_SCALES
from pyquant.rounding.staged_context import LOGITS_BYTES, PIECE
from pyquant.rounding.staged_memory import MEMORY, most_at_work, routed_bytes

# Tokens for each column from where it is not told what more of them bring; t of them add LOST / t to the
# error that tokens without end would leave (docs/methods/gptq.md); what twice as many take off at the most.
MANY, LOST, MOST_GAINED = 20, 0.7, 0.1

PROCESS = 190e6  # bytes of Python and its libraries


@dataclass(frozen=True)
class Forecast:
    """What is expected of a method.

    Attributes
    ----------
    stages
        Their names, in order.
    parts
        Calibration, stages, and their evaluation on held-out chunks: what progress calls each, in the order
        of the work, and its seconds.
    memory
        Bytes at the most, the mapped model not counted.
    hessian, beside, temporary
        Bytes on disk: of the Hessian statistics, beside the output until it is complete, and in TMPDIR.
    all_hessians
        Bytes that the Hessians of all matrices would take.
    keeps_hessians
        Whether they are kept; else they are collected layer by layer, while the model is rounded.
    output_side
        Kinds of matrices that output-side Hessians are made of.
    columns, tokens_per_column
        What `widest_columns` counts, and tokens of the texts for each of these.
    """

    stages: list[str]
    parts: list[tuple[str, float]]
    memory: int
    hessian: int
    beside: int
    temporary: int
    all_hessians: int
    keeps_hessians: bool
    output_side: list[str]
    columns: int
    tokens_per_column: float

    @property
    def seconds(self) -> float:
        """The sum of all parts'."""
        return sum(seconds for _, seconds in self.parts)

    def lines(self) -> Iterator[str]:
        """Say it."""
        by_gptq = len(self.stages) > 1
        if by_gptq:
            yield f"stages: {', '.join(self.stages)}; those of the least KLD on held-out chunks are kept"
        yield f"time: about {max(1, round(self.seconds / 60)):,} min, less what the cache has already"
        yield f"memory: about {gb(self.memory)}, the mapped model not counted"
        temporary = f", {gb(self.temporary)} in TMPDIR" if self.temporary else ""
        yield (
            f"disk: {gb(self.hessian)} of Hessian statistics, {gb(self.beside)} beside the output{temporary}"
        )
        if not by_gptq:
            return
        if self.tokens_per_column < MANY:
            gained = min(MOST_GAINED, LOST / 2 / (self.tokens_per_column + LOST))
            yield (
                f"calibration: {self.tokens_per_column:.1f} tokens for each of the {self.columns:,} columns "
                f"of the widest matrices; twice as many would take about {gained:.0%} off their error"
            )
        if not self.keeps_hessians:
            why = "Hessians of experts are shrunk towards each other"
            if self.all_hessians > MOST_BYTES:
                why = f"Hessians of all matrices would take {gb(self.all_hessians)}"
            yield f"{why}: they are collected layer by layer; --hessian FILE keeps them"
            if self.output_side:
                kinds = ", ".join(self.output_side)
                yield f"output-side Hessians: of {kinds}, whose outputs are the narrowest"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**asdict(self), "seconds": self.seconds}


def forecast(
    model: ModelFile,
    method: str,
    texts: SplitText,
    *,
    output_bytes: int,
    probed: Probe,
    in_file: bool,
    mixed: bool,
    trains_scales: bool,
    n_evaluated: int,
    memory: int | None,
    threads: int | None,
) -> Forecast:
    """Add up from a short pass, and from the model's header.

    Parameters
    ----------
    model, method, texts
        What is quantized by "imatrix", "gptq" or "best", calibrated on what.
    output_bytes
        Of a stage's file.
    probed
        What `probe` gives.
    in_file
        Whether Hessian statistics are kept in a file of the user's, whatever they take.
    mixed
        Whether types are mixed for a size, which is measured on files that are tried.
    trains_scales
        Whether scales are trained when all is rounded.
    n_evaluated
        Tokens that the output is evaluated on, by "gptq" and "best" beside llama-quantize's file.
    memory
        Bytes that what is kept of tokens between layers may take; None: 512 MiB.
    threads
        None: one for each core.
    """
    n_ctx, n_chunks = texts.held_out.n_ctx, texts.n_chunks
    by_name = {tensor.name: tensor for tensor in model.tensors}
    n_used, width = model.hyperparameter("expert_used_count", 1), model.hyperparameter("embedding_length")
    inputs = [
        Entered(
            each.n_in, [by_name[name] for name in each.matrices], n_used if each.routed else 1,
            in_stream=not each.routed and [by_name[name].n_rows for name in each.matrices] == [width],
        )
        for each in probed.collector.inputs
    ]  # fmt: skip
    matrices = [tensor for each in inputs for tensor in each.matrices]
    n_vocab = by_name[EMBEDDINGS].n_rows if EMBEDDINGS in by_name else 0
    has_gradients = why_unknown(model) is None
    has_output_side = method == "best" and has_gradients
    rows = output_side_matrices(model, whole=True) if has_output_side else []
    sums, output_hessians = 4 * sum(probed.collector.sizes), output_side_bytes(by_name[name] for name in rows)
    all_hessians = sums + output_hessians
    experts = [tensor for tensor in matrices if tensor.n_experts > 1]
    # Those of experts are shrunk towards each other, and for that collected anew.
    by_gptq = method in BY_GPTQ
    keeps = in_file or (by_gptq and not experts and all_hessians <= MOST_BYTES)
    if not keeps:
        sums = 4 * sum(each.n_in * each.n_hessians for each in inputs)
        rows = output_side_matrices(model, whole=False) if has_output_side else []
        output_hessians = output_side_bytes(by_name[name] for name in rows)
    n_output_side = min(OUTPUT_SIDE_CHUNKS, n_chunks) if rows else 0
    by_gradients = n_output_side > 0
    n_tried = n_trials(by_gradients=by_gradients)
    n_kept = min(MOST_CHUNKS, round(n_chunks * (1 + RANDOM_SHARE)))  # random tokens are among them
    n_propagated = min(PROPAGATION_CHUNKS if keeps else MOST_CHUNKS, n_kept) if method == "best" else 0
    n_collected = n_kept if by_gptq and not (keeps or n_propagated) else 0
    trains_scales = trains_scales and has_gradients
    stages = stages_of(
        method, Path(), output_side=n_output_side > 0, collected=not keeps, trains_scales=trains_scales
    )
    names = [stage.name for stage in stages if not stage.instead and not stage.trains_on]

    cores, chunk_seconds, n_together = n_threads(threads), probed.chunk_seconds, probed.n_together
    parts: list[tuple[str, float]] = []
    if texts.n_written:
        steps = n_ctx * -(-texts.n_written // max(1, n_together))
        parts.append((WRITING, probed.step_seconds * steps))
    if n_output_side:
        its = n_products_backwards(model.tensors, [by_name[name] for name in rows], n_ctx * n_output_side)
        parts.append((GRADIENTS, BESIDE_PRODUCTS * its / products_per_second(threads)))
    n_diagonal = min(DIAGONAL_CHUNKS, n_chunks) if by_gptq else n_chunks
    passes = COLLECTING * n_chunks if keeps else STAGED * n_diagonal
    parts.append((RUNNING, passes * chunk_seconds))
    if mixed:
        passes = passes_of_mix(matrices, n_chunks, n_ctx, by_gradients=by_gradients)
        of_cores = n_tried * (rounding(inputs) if keeps else quantizing(model.tensors))
        parts.append((MIX, passes * chunk_seconds + of_cores / cores))
    held_out_run = (HELD_OUT, texts.held_out.n_chunks * chunk_seconds)
    parts.append(held_out_run)  # the base
    for name in names:
        passes, of_cores = 0.0, rounding(inputs) if name != names[0] else quantizing(model.tensors)
        if name == names[-1]:
            passes = PROPAGATING * n_propagated if keeps else STAGED * (n_collected + 2 * n_propagated)
            if not keeps:
                of_cores += collecting(inputs, n_ctx * (n_collected or n_propagated))
                of_cores += correcting(inputs, n_ctx * n_propagated)
        parts += [(name, passes * chunk_seconds + of_cores / cores), held_out_run]
    if trains_scales:
        n_tokens = n_ctx * min(SCALE_CHUNKS, n_chunks)
        its = n_products_backwards(model.tensors, [], n_tokens) + n_tokens * model.n_weights  # the base's
        parts += [(TRAINED_SCALES, BESIDE_PRODUCTS * its / products_per_second(threads)), held_out_run]
        names.append(TRAINED_SCALES)
    peer_bytes = output_bytes if n_evaluated and by_gptq else 0
    if n_evaluated:
        passes = n_evaluated / n_ctx * (2 + (peer_bytes > 0))  # the base runs too
        of_cores = quantizing(model.tensors) if peer_bytes else 0.0
        parts.append((EVALUATION, passes * chunk_seconds + of_cores / cores))

    gradients = gradient_memory(model, n_ctx) if n_output_side else 0
    calibration = (
        sums
        + 2 * output_hessians
        + max(gradients, context_memory(model, n_ctx, BATCH), cache_memory(model, n_ctx, n_together))
    )
    widest = max(each.n_in for each in inputs)
    of_token = 4 * (2 * width + widest)  # kept between matrices
    a_pass = min(LOGITS_BYTES, 4 * PIECE * n_vocab) + activation_memory(model, PIECE)
    rounds, on_disk = context_memory(model, n_ctx) + BYTES * widest**2 * by_gptq, 0
    for n_run, n_passes in ((n_collected, 1), (n_propagated, 2)):
        if n_run:
            states = n_passes * n_run * n_ctx * of_token
            limit = MEMORY if memory is None else memory
            routed = max(
                (routed_bytes(model, t.name, t.n_per_row, n_passes * n_run * n_ctx) for t in experts),
                default=0,
            )
            in_memory = min(limit, states) + (routed if states + routed <= limit else 0)
            n_correcting = n_run * n_ctx * (n_passes > 1)
            at_work = sum(most_at_work(model, ((each.n_in, each.matrices, n_correcting) for each in inputs)))
            rounds = max(rounds, at_work + in_memory + n_passes * a_pass)
            on_disk = max(on_disk, states + routed - in_memory)
    columns = widest_columns(model)
    if trains_scales:
        rounds = max(rounds, gradient_memory(model, n_ctx))
    held_out = bytes_in_memory(n_vocab, n_ctx)
    of_kinds: Counter[str] = Counter()
    if not by_gradients:  # all tensors of a kind are held, rounded, beside the mapped model
        for tensor in model.tensors:
            of_kinds[kind_of(tensor.name)] += tensor.n_bytes
    mixing = (max(of_kinds.values(), default=0) + context_memory(model, n_ctx, BATCH)) * mixed
    equalized = model.n_bytes + sums if n_propagated else 0
    return Forecast(
        [MIX, *names] if mixed else names,
        parts=parts,
        memory=int(PROCESS) + max(calibration, held_out + max(rounds, mixing)),
        hessian=sums + output_hessians,
        beside=min(2, len(names)) * output_bytes + on_disk,  # files of two stages, and activations
        temporary=max(n_tried * output_bytes if mixed else 0, equalized, peer_bytes),
        all_hessians=all_hessians,
        keeps_hessians=keeps,
        output_side=list(dict.fromkeys(map(kind_of, rows))),
        columns=columns,
        tokens_per_column=n_chunks * n_ctx / columns,
    )


def gb(n_bytes: int) -> str:
    """Say a size."""
    return f"{n_bytes / 1e9:.2f} GB"
