"""Rounding in which rows of a matrix absorb the errors of rows before them (YAQA).

What errors e of a matrix do to the model's predictions is the trace of G e H e^T, to second order and if
inputs and gradients do not go together: H is the Hessian of what enters, G that of the gradients of what
comes out. With G = L^T D L, L unit lower triangular,

    tr(G e H e^T) = sum_i D_i f_i H f_i^T,   f_i = e_i + sum_{j<i} L_ij e_j.

When row i is reached the errors before it are known. So the row is rounded as it would be by itself, but of
w_i + sum_{j<i} L_ij e_j. This is YAQA's rounding (Tseng et al., 2025) of rows, with the search for scales of
csrc/gptq within each. L^T is the factor U of GPTQ, of G in the place of H.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.machine.cpu import n_threads

PIECE = 32  # rows that a thread rounds at a time; a factor's are filled up to a multiple of these
STEPS = 24  # in which a matrix is rounded, or more: fewer give more threads work, and leave more KLD


@dataclass(frozen=True)
class RowsPassed:
    """What a pass over a matrix says, of rounded rows: see `_core.PassResult`."""

    squared_error: float
    squared_weight: float
    zeros: int


def rows_passed(weights: NDArray[np.float32], values: NDArray[np.float32]) -> RowsPassed:
    """Measure what rounding weights, (n_rows, n_in), to values did."""
    error = np.square(weights - values, dtype=np.float64).sum()
    power = np.square(weights, dtype=np.float64).sum()
    return RowsPassed(float(error), float(power), int(np.count_nonzero(values == 0)))


def row_factor(
    output_hessian: NDArray[np.float32], dampening: float, *, threads: int | None = None
) -> _core.Factor:
    """Decompose an output-side Hessian: rows whose errors count most come first.

    output_hessian: (n_rows, n_rows) float32.
    dampening: what is added to its diagonal, in units of its mean.
    """
    n = len(output_hessian)
    more = -n % PIECE  # rows that nothing depends on come last
    if more:
        output_hessian, dampening = np.pad(output_hessian, (0, more)), dampening * (n + more) / n
    return _core.factorize(
        output_hessian, dampening=dampening, together=(1, 1, 1), n_threads=n_threads(threads)
    )


def round_rows(
    weights: NDArray[np.float32], rows: _core.Factor, encoder: _core.Encoder, *, threads: int | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Round a matrix.

    weights: (n_rows, n_in) float32.
    rows: what `row_factor` gives.
    encoder: rounds rows, each by itself; the result does not depend on which are rounded together.
    Returns stored: (n_rows, row_bytes) uint8. values: (n_rows, n_in) float32: what is stored, decoded.
    """
    return _core.round_rows(
        weights, rows=rows, encoder=encoder, together=together(len(weights)), n_threads=n_threads(threads)
    )


def together(n_rows: int) -> int:
    """Count the rows of a matrix that are rounded at a time, none of which knows of the others' errors."""
    pieces = 1
    while 2 * pieces * PIECE * STEPS <= n_rows:
        pieces *= 2  # for threads to have as many each
    return pieces * PIECE
