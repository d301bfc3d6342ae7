"""What a matrix has to change by when its inputs have changed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ENOUGH = 8  # tokens for each column of a matrix; fewer do more harm by chance than good
PORTION = 4096  # tokens whose moments are summed up together


class Correction:
    """Sums over tokens, of inputs as they were and as they are now.

    Parameters
    ----------
    n_in
        How long an input is.
    """

    def __init__(self, n_in: int) -> None:
        self._n_in = n_in
        self._moments, self._moved = np.zeros((2, n_in, n_in), np.float32)
        self.n_tokens = 0

    @property
    def enough(self) -> bool:
        """Whether there are enough tokens to correct by."""
        return self.n_tokens >= ENOUGH * self._n_in

    def add(self, original: NDArray[np.float32], changed: NDArray[np.float32]) -> None:
        """Add tokens' inputs, (n_tokens, n_in)."""
        for begin in range(0, len(original), PORTION):
            part = changed[begin : begin + PORTION]
            self._moments += part.T @ part
            self._moved += (original[begin : begin + PORTION] - part).T @ part
        self.n_tokens += len(original)

    def result(self, damping: float) -> NDArray[np.float32]:
        """Return what a matrix W has to change by, as W @ result.

        It then gives of changed inputs what it gave of the original ones, in the least squares over all
        tokens.

        Parameters
        ----------
        damping
            What is added to the diagonal of the changed inputs' moments, in units of its mean.

        Returns
        -------
        (n_in, n_in) float32
            With x the original inputs and y the changed ones,
            E[(x - y) y^T] (E[y y^T] + damping * mean diagonal * I)^-1.
        """
        damped = self._moments.astype(np.float64)
        damped[np.diag_indices(self._n_in)] += damping * damped.trace() / self._n_in if damped.any() else 1
        return np.linalg.solve(damped, self._moved.T).T.astype(np.float32)
