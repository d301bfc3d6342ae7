"""How long the parts of a method take, from a pass that was timed and from rates of one CPU.

Rates are of one core of an AMD EPYC 9004 (Zen 4); that of AMX of an Intel Xeon (Sapphire Rapids).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyquant import _core
from pyquant.calibration.gradients.llama_graph import n_given
from pyquant.fit.method.types_for_size import MEASURED
from pyquant.fit.mix_model import CTX, chunks_for
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_name import EMBEDDINGS, kind_of
from pyquant.rounding.correction import ENOUGH

# Beside llama.cpp's pass over the same tokens: SmolLM2-135M on one core.
COLLECTING, PROPAGATING = 1.9, 2.0 if _core.HAS_BF16_PRODUCTS else 3.0
# And a pass that stops at each matrix, or is for diagonals alone: `benchmarks passes`, 0.29 billion weights.
STAGED = 0.25 if _core.HAS_AMX_PRODUCTS else 0.57 if _core.HAS_BF16_PRODUCTS else 1.0
# Operations per second: sums over tokens of x x^T, n_in² for each, Cholesky factors, error feedback.
SUMS = 3.5e11 if _core.HAS_AMX_PRODUCTS else 1.7e11 if _core.HAS_BF16_PRODUCTS else 5e10
FACTORS, FEEDBACK = 3.2e10, 7e10
# Seconds for each weight: GPTQ's search for scales, and GGML's own quantizers.
SEARCH, GGML = 3e-8, 1.1e-7
MAKING = 5e-9  # and for each element of an expert's Hessian, beside the sums
BESIDE_PRODUCTS = 1.5  # what a pass backwards takes, beside its products alone


@dataclass(frozen=True)
class Entered:
    """Matrices that share an input.

    n_in: how long it is. matrices: the tensors. n_used: experts that a token is sent to; 1 without experts.
    in_stream: whether what it gives is added to the residual stream.
    """

    n_in: int
    matrices: Sequence[Tensor]
    n_used: int
    in_stream: bool

    @property
    def n_out(self) -> int:
        """What the first of them gives for a token."""
        return self.matrices[0].shape[1]

    @property
    def n_hessians(self) -> int:
        """One for each expert."""
        return self.matrices[0].n_experts


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


def passes_of_mix(matrices: Sequence[Tensor], n_chunks: int, n_ctx: int, *, by_gradients: bool) -> float:
    """Count passes over a chunk of n_ctx tokens that finding a mix takes: of a model calibrated on n_chunks.

    Files are compared with the base. Without gradients a matrix's sensitivity takes the half of a pass that
    is behind it, in the mean, and kinds of tensors are compared too.
    """
    compared = 1.0 + n_trials(by_gradients=by_gradients)
    if by_gradients:
        return MEASURED * compared
    of_sensitivity = CTX * chunks_for(n_chunks * n_ctx, len(matrices)) / n_ctx
    kinds = {kind_of(tensor.name) for tensor in matrices}
    of_kinds = STAGED * (2 + len(kinds))  # the base runs twice: the second time it is compared with itself
    return len(matrices) * of_sensitivity / 2 + MEASURED * (compared + of_kinds)


def n_trials(*, by_gradients: bool) -> int:
    """Count the files that are made to find a mix of types: of one or two rounds, and a stock mixture's."""
    return 2 if by_gradients else 3
