"""Choose the power of two by which each channel of a link is scaled.

A matrix and what enters it are both rounded in blocks of columns that share a scale. If column k of a block
has power W_k, and what enters it power X_k, then scaling by s_k makes the error of weights about

    (sum_k X_k / s_k^2) (sum_k W_k s_k^2),

and the error of inputs, which llama.cpp rounds to 8 bits, the same: by the inequality of Cauchy and Schwarz
both are least where s_k^2 is proportional to sqrt(X_k / W_k). SmoothQuant (Xiao et al., 2023) and AWQ
(Lin et al., 2023) scale channels for one of the two. With GPTQ, X_k counts less for
weights than that, as other columns absorb a part of it; so the root is taken of what the formula says.

A power of two changes no digit of a float. So the model's outputs stay as they are, to the last bit, unless a
number leaves the range of its type.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyquant.calibration.calibration import Calibration
from pyquant.models.tensor import Tensor
from pyquant.rounding.equalize.links import Link

TRUST = 0.5  # of what the formula says, in logarithms
MOST = 8  # the largest exponent: a channel's scale over that of most others


def exponents_of(link: Link, calibration: Calibration) -> NDArray[np.int8] | None:
    """Choose a link's exponents by what enters its matrices, and by their weights.

    calibration: what is known of inputs.
    Returns (n_experts, n_channels) int8: columns are to be 2 to this times as large. None where nothing is
    known of the input.
    """
    known = [tensor for tensor in link.entered if tensor.name in calibration.matrices]
    if not known:
        return None
    power = _power_of_input(known[0], link, calibration)
    weights = np.zeros_like(power)
    for tensor in known:
        of_columns = _power_of_columns(tensor, link)
        gives = (power * of_columns).sum(axis=1, keepdims=True)  # so that all matrices count alike
        weights += np.divide(of_columns, gives, out=np.zeros_like(of_columns), where=gives > 0)
    return balance(link.to_channels(power), link.to_channels(weights))


def balance(power: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.int8]:
    """Choose exponents by powers of what enters, and of the columns it enters: see above.

    power, weights: (n_experts, n_channels) float64.
    Returns (n_experts, n_channels) int8: 0 for the median channel of an expert, and for those that nothing
    enters or that have no weights.
    """
    used = (power > 0) & (weights > 0)
    logarithms = np.full(power.shape, np.nan)
    logarithms[used] = np.log2(power[used] / weights[used])
    exponents = np.zeros(power.shape, np.int8)
    for row, values in zip(exponents, logarithms):
        if not np.isnan(values).all():
            scaled = TRUST / 4 * (values - np.nanmedian(values))
            row[:] = np.rint(np.clip(np.nan_to_num(scaled), -MOST, MOST))
    return exponents


def _power_of_input(tensor: Tensor, link: Link, calibration: Calibration) -> NDArray[np.float64]:
    """(n_experts of the link, n_columns): mean squares of what enters, over all experts if they share it."""
    diagonal = calibration.diagonal(tensor.name).reshape(-1, tensor.n_per_row).astype(np.float64)
    if len(diagonal) == link.n_experts:
        return diagonal
    counts = np.broadcast_to(calibration.counts(tensor.name), len(diagonal))
    return np.average(diagonal, axis=0, weights=counts if counts.any() else None)[None]


def _power_of_columns(tensor: Tensor, link: Link) -> NDArray[np.float64]:
    """(n_experts of the link, n_columns): sums of squares of each column."""
    weights = tensor.weights().reshape(link.n_experts, -1, tensor.n_per_row)
    return np.einsum("eij,eij->ej", weights, weights, dtype=np.float64)
