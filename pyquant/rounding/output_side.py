"""Rounding in which rows of a matrix absorb the errors of rows before them (YAQA).

What errors e of a matrix do to the model's predictions is the trace of G e H e^T, to second order and if
inputs and gradients do not go together: H is the Hessian of what enters, G that of the gradients of what
comes out. With G = L^T D L, L unit lower triangular,

    tr(G e H e^T) = sum_i D_i f_i H f_i^T,   f_i = e_i + sum_{j<i} L_ij e_j.

When row i is reached the errors before it are known. So the row is rounded as it would be by itself, but of
w_i + sum_{j<i} L_ij e_j. This is YAQA's rounding (Tseng et al., 2025) of rows, with the search for scales of
csrc/gptq within each.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.machine.cpu import n_threads

TOGETHER = 64  # rows that are rounded at a time, none of which knows of the others' errors
PIECE = 16  # of these, for a thread: what csrc/gptq rounds in one vector


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


@dataclass(frozen=True)
class RowFeedback:
    """How rows of a matrix absorb each other's errors."""

    # (n_rows,): the rows in the order in which they are rounded: those whose errors count most first
    order: NDArray[np.int64]
    lower: NDArray[np.float32]  # (n_rows, n_rows): L, in that order

    @classmethod
    def of(cls, output_hessian: NDArray[np.float32], dampening: float) -> RowFeedback:
        """Decompose output-side Hessian.

        output_hessian: (n_rows, n_rows) float32.
        dampening: what is added to their diagonal, in units of its mean.
        """
        hessian = output_hessian.astype(np.float64)
        n = len(hessian)
        hessian[np.diag_indices(n)] += dampening * max(np.trace(hessian) / n, np.finfo(np.float32).tiny)
        order = np.argsort(-np.diagonal(hessian), kind="stable")
        upper = np.linalg.cholesky(hessian[np.ix_(order[::-1], order[::-1])])[::-1, ::-1]
        return cls(order, (upper / np.diagonal(upper)).T.astype(np.float32))

    def round(
        self,
        weights: NDArray[np.float32],
        encoder: _core.Encoder,
        *,
        threads: int | None = None,
    ) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """Round a matrix.

        weights: (n_rows, n_in) float32.
        encoder: rounds rows, each by itself; the result does not depend on which are rounded together.
        Returns stored: (n_rows, row_bytes) uint8. values: (n_rows, n_in) float32: what is stored, decoded.
        """
        n_rows, n_in = weights.shape
        weights = weights[self.order]
        errors, decoded = np.zeros_like(weights), np.empty_like(weights)
        stored: list[NDArray[np.uint8]] = []
        with ThreadPoolExecutor(n_threads(threads)) as pool:
            for begin in range(0, n_rows, TOGETHER):
                rows = slice(begin, min(begin + TOGETHER, n_rows))
                wanted = weights[rows] + self.lower[rows, :begin] @ errors[:begin]
                pieces = [wanted[i : i + PIECE] for i in range(0, len(wanted), PIECE)]
                stored += pool.map(encoder.encode, pieces)
                made = np.concatenate(stored[-len(pieces) :])
                decoded[rows] = encoder.decode(made, n_per_row=n_in)
                errors[rows] = weights[rows] - decoded[rows]
        together = np.concatenate(stored)
        result, values = np.empty_like(together), np.empty_like(decoded)
        result[self.order], values[self.order] = together, decoded
        return result, values
