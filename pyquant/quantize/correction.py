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
        return solve(self._moments, self._moved, damping)


def solve(moments: NDArray[np.float32], moved: NDArray[np.float32], damping: float) -> NDArray[np.float32]:
    """Return moved (moments + damping * mean diagonal * I)^-1, (n_out, n_in).

    Parameters
    ----------
    moments : (n_in, n_in) float32
        Sums of y y^T, y what enters now.
    moved : (n_out, n_in) float32
        Sums of z y^T, z what is to be made up for.
    damping
        In units of the mean diagonal of `moments`.
    """
    damped = moments.astype(np.float64)
    damped[np.diag_indices(len(damped))] += damping * damped.trace() / len(damped) if damped.any() else 1
    return np.linalg.solve(damped, moved.T).T.astype(np.float32)


class Corrections:
    """What a matrix has to change by, or the matrices of experts, each by the tokens that are sent to it now.

    Parameters
    ----------
    n_experts, n_in
        How many experts there are, 1 for a matrix that all tokens enter; and how long an input is.
    """

    def __init__(self, n_experts: int, n_in: int) -> None:
        self._sums = [Correction(n_in) for _ in range(n_experts)]

    def add(
        self,
        original: NDArray[np.float32],
        changed: NDArray[np.float32],
        original_experts: NDArray[np.int32] | None = None,
        changed_experts: NDArray[np.int32] | None = None,
    ) -> None:
        """Add tokens.

        Parameters
        ----------
        original, changed
            (n_tokens, n_in). For experts (n_tokens, 1, n_in), what enters all that a token is sent to, which
            is known of all; or (n_tokens, n_used, n_in), what enters each. Of these, the tokens count that
            were sent to the expert in both passes.
        original_experts, changed_experts
            (n_tokens, n_used): the experts; None if there are none.
        """
        if original_experts is None or changed_experts is None:
            self._sums[0].add(original, changed)
            return
        for expert, sums in enumerate(self._sums):
            token, place = np.nonzero(changed_experts == expert)
            if original.shape[1] == 1:
                sums.add(original[token, 0], changed[token, 0])
                continue
            met, before = np.nonzero(original_experts[token] == expert)
            sums.add(original[token[met], before], changed[token[met], place[met]])

    def results(self, damping: float) -> list[NDArray[np.float32] | None]:
        """Return each expert's change, as `Correction.result` does; None where there are too few tokens."""
        return [sums.result(damping) if sums.enough else None for sums in self._sums]
