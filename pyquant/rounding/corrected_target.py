"""Compute what has to be added to a matrix so that the residual stream behind it becomes what it was."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pyquant.calibration.products import multiply, portions
from pyquant.rounding.correction import Sums

DIRECTIONS = 128  # at most, in which the size of a stream is measured


class CorrectedTarget:
    """Sums over tokens, of what enters a matrix and of what the residual stream behind it lacks.

    So the matrix corrects what those before it have done to the residual stream as well. A token's weight is
    the size of the residual stream behind the matrix. That takes another product with the matrix, so it is
    measured in fewer directions than it has, drawn at random: within 6 % (Achlioptas, *Database-friendly
    random projections*, 2003).

    weights: (n_out, n_in) float32: the matrix.
    """

    def __init__(self, weights: NDArray[np.float32], threads: int | None = None) -> None:
        self._weights, self._threads = weights, threads
        n_out, n_in = weights.shape
        self._sums = Sums(n_out, n_in, threads)
        if n_out > DIRECTIONS:
            signs = np.random.default_rng(0).choice([-1, 1], (DIRECTIONS, n_out))
            self._directions = (signs / math.sqrt(DIRECTIONS)).astype(np.float32)
        else:
            self._directions = np.eye(n_out, dtype=np.float32)
        self._projected = self._directions @ weights

    def add(
        self,
        original: NDArray[np.float32],
        changed: NDArray[np.float32],
        stream: NDArray[np.float32],
        changed_stream: NDArray[np.float32],
    ) -> None:
        """Add tokens.

        original, changed: (n_tokens, n_in): inputs as they were, and as they are now.
        stream, changed_stream: (n_tokens, n_out): what the product is added to, as it was and as it is now.
        """
        for part in portions(len(original)):
            # Of differences, so that rounding is of them, and not of what both have.
            missing = multiply(self._weights, original[part] - changed[part], threads=self._threads)
            missing += stream[part] - changed_stream[part]
            # A norm follows: what is missing counts in proportion to the residual stream.
            behind = multiply(self._projected, original[part], threads=self._threads)
            behind += multiply(self._directions, stream[part], threads=self._threads)
            size = np.linalg.norm(behind, axis=1, keepdims=True)
            size[size == 0] = 1
            self._sums.add(changed[part] / size, missing / size)

    def result(self, dampening: float) -> NDArray[np.float32] | None:
        """Return what has to be added to the matrix; None where there are too few tokens.

        dampening: what is added to the diagonal of the changed inputs' Hessian, in units of its mean.
        Returns (n_out, n_in) float32: with x, y the inputs and r, s the streams, original and changed, each
        divided by |r + W x|, E[(W (x - y) + r - s) y^T] (E[y y^T] + dampening * mean diagonal * I)^-1.
        """
        return self._sums.solution(dampening) if self._sums.enough else None
