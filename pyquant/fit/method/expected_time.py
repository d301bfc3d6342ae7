"""How long the parts of a method take, from a pass that was timed and from rates of one CPU.

Rates are of one core of an AMD EPYC 9004 (Zen 4); that of AMX of an Intel Xeon (Sapphire Rapids).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyquant import _core
from pyquant.calibration.calibrate import GRADIENTS, RUNNING
from pyquant.calibration.gradients.llama_graph import n_given
from pyquant.calibration.wanted import WRITING
from pyquant.fit.method.expected_work import Entered, Work
from pyquant.fit.method.held_out import HELD_OUT
from pyquant.fit.method.hessian import DIAGONAL_CHUNKS
from pyquant.fit.method.probe import products_per_second
from pyquant.fit.method.request import EVALUATION
from pyquant.fit.method.stages import SCALE_CHUNKS
from pyquant.fit.method.types_for_size import MEASURED, MIX
from pyquant.fit.mix_model import CTX, sensitivity_chunks
from pyquant.machine.cpu import n_threads
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_name import EMBEDDINGS, kind_of
from pyquant.rounding.correction import ENOUGH
from pyquant.rounding.metadata import TRAINED_SCALES

# Beside llama.cpp's pass over the same tokens: SmolLM2-135M on one core.
COLLECTING, PROPAGATING = 1.9, 2.0 if _core.HAS_BF16_PRODUCTS else 3.0
# And a pass that stops at each matrix, or is for diagonals alone: `benchmarks passes`, 0.31 billion weights.
STAGED = 0.25 if _core.HAS_AMX_PRODUCTS else 0.57 if _core.HAS_BF16_PRODUCTS else 1.0
# Operations per second: sums over tokens of x x^T, n_in² for each, Cholesky factors, error feedback.
SUMS = 3.5e11 if _core.HAS_AMX_PRODUCTS else 1.7e11 if _core.HAS_BF16_PRODUCTS else 5e10
FACTORS, FEEDBACK = 3.2e10, 7e10
# Seconds for each weight: GPTQ's search for scales, and GGML's own quantizers.
SEARCH, GGML = 3e-8, 1.1e-7
MAKING = 5e-9  # and for each element of an expert's Hessian, beside the sums
BESIDE_PRODUCTS = 1.5  # what a pass backwards takes, beside its products alone


def parts_of(work: Work) -> list[tuple[str, float]]:
    """List the parts of the work, first to last: what progress calls each, and its seconds."""
    held_out = HELD_OUT, work.texts.held_out.n_chunks * work.probed.chunk_seconds
    parts = [*_calibration(work), held_out]  # the base
    for name in work.stages:
        parts += [(name, _stage(work, name)), held_out]
    if work.n_evaluated:
        passes = work.n_evaluated / work.n_ctx * (2 + (work.peer_bytes > 0))  # the base runs too
        of_cores = quantizing(work.model.tensors) if work.peer_bytes else 0.0
        parts.append((EVALUATION, _seconds(work, passes, of_cores)))
    return parts


def _calibration(work: Work) -> Iterator[tuple[str, float]]:
    if not work.given:
        yield from _statistics(work)
    if work.mixed:
        passes = passes_of_mix(work)
        of_file = rounding(work.inputs) if work.keeps else quantizing(work.model.tensors)
        yield MIX, _seconds(work, passes, work.n_tried * of_file)


def _statistics(work: Work) -> Iterator[tuple[str, float]]:
    if work.texts.n_written:
        steps = work.n_ctx * -(-work.texts.n_written // max(1, work.probed.n_together))
        yield WRITING, work.probed.step_seconds * steps
    if work.n_output_side:
        rows = [work.by_name[name] for name in work.rows]
        products = n_products_backwards(work.model.tensors, rows, work.n_ctx * work.n_output_side)
        yield GRADIENTS, _backwards(work, products)
    n_diagonal = min(DIAGONAL_CHUNKS, work.n_chunks) if work.by_gptq else work.n_chunks
    yield RUNNING, _seconds(work, COLLECTING * work.n_chunks if work.keeps else STAGED * n_diagonal)


def _stage(work: Work, name: str) -> float:
    if name == work.stages[0]:
        of_cores = quantizing(work.model.tensors)
    elif name == TRAINED_SCALES:
        n_tokens = work.n_ctx * min(SCALE_CHUNKS, work.n_chunks)
        products = n_products_backwards(work.model.tensors, [], n_tokens)
        return _backwards(work, products + n_tokens * work.model.n_weights)  # the base's
    else:
        of_cores = rounding(work.inputs)
    passes = 0.0
    if name == [stage for stage in work.stages if stage != TRAINED_SCALES][-1]:
        if work.keeps:
            passes = PROPAGATING * work.n_propagated
        else:
            passes = STAGED * (work.n_collected + 2 * work.n_propagated)
            of_cores += collecting(work.inputs, work.n_ctx * (work.n_collected or work.n_propagated))
            of_cores += correcting(work.inputs, work.n_ctx * work.n_propagated)
    return _seconds(work, passes, of_cores)


def _seconds(work: Work, passes: float, of_cores: float = 0.0) -> float:
    """Add up passes over a chunk, and seconds of a core that all share."""
    return passes * work.probed.chunk_seconds + of_cores / n_threads(work.threads)


def _backwards(work: Work, n_products: int) -> float:
    return BESIDE_PRODUCTS * n_products / products_per_second(work.threads)


def quantizing(tensors: Sequence[Tensor]) -> float:
    """Seconds of a core for llama-quantize's file."""
    return GGML * sum(tensor.n_weights for tensor in tensors)


def rounding(inputs: Sequence[Entered]) -> float:
    """Seconds of a core for GPTQ, from its Hessians."""
    weights = [(entered.n_in, sum(t.n_weights for t in entered.matrices)) for entered in inputs]
    feedback = sum(5 * n * n_weights for n, n_weights in weights) / FEEDBACK
    factors = sum(
        entered.n_hessians
        * (entered.n_in**3 / 3 / FACTORS + MAKING * entered.n_in**2 * (entered.n_hessians > 1))
        for entered in inputs
    )
    return feedback + factors + SEARCH * sum(n_weights for _, n_weights in weights)


def collecting(inputs: Sequence[Entered], n_tokens: int) -> float:
    """Seconds of a core for the sums of x x^T over tokens, passes not counted."""
    return n_tokens * sum(each.n_used * each.n_in**2 for each in inputs) / SUMS


def correcting(inputs: Sequence[Entered], n_tokens: int) -> float:
    """Seconds of a core for the sums that matrices are corrected by, where there are tokens enough."""
    enough = [entered for entered in inputs if n_tokens >= ENOUGH * entered.n_in]
    # What is made up for is as long as the input, or as what the matrix gives, which takes a product more.
    sums = sum(
        each.n_used * each.n_in * (each.n_in + (4 * each.n_out if each.in_stream else 2 * each.n_in))
        for each in enough
    )
    solving = sum(
        each.n_hessians * each.n_in**2 * (each.n_in / 3 + (each.n_out if each.in_stream else each.n_in))
        for each in enough
    )
    return n_tokens * sums / SUMS + solving / FACTORS


def n_products_backwards(tensors: Sequence[Tensor], output_side: Sequence[Tensor], n_tokens: int) -> int:
    """Count what `LlamaGraph` multiplies: forwards, forwards again within layers, and backwards.

    output_side: matrices that output-side Hessians are of.
    """
    of_layers = sum(tensor.n_weights for tensor in tensors if tensor.layer >= 0)
    vocabulary = sum(tensor.n_weights for tensor in tensors if tensor.name == EMBEDDINGS)
    return n_tokens * (3 * of_layers + 2 * vocabulary + sum(n_given(tensor) ** 2 for tensor in output_side))


def passes_of_mix(work: Work) -> float:
    """Count passes over a chunk that finding a mix takes.

    Files are compared with the base. Without gradients a matrix's sensitivity takes the half of a pass that
    is behind it, in the mean, and kinds of tensors are compared too.
    """
    compared = 1.0 + work.n_tried
    if work.knows_gradients:
        return MEASURED * compared
    of_sensitivity = CTX * sensitivity_chunks(work.n_tokens, len(work.matrices)) / work.n_ctx
    kinds = {kind_of(tensor.name) for tensor in work.matrices}
    of_kinds = STAGED * (2 + len(kinds))  # the base runs twice: the second time it is compared with itself
    return len(work.matrices) * of_sensitivity / 2 + MEASURED * (compared + of_kinds)
