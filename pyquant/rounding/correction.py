"""Compute what a matrix has to change by when its inputs have changed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.rounding.products import add_products

ENOUGH = 8  # tokens for each column of a matrix; fewer do more harm by chance than good
PORTION = 4096  # tokens whose Hessians are summed up together


class Sums:
    """Sums over tokens by which a matrix is changed, in least squares: of y y^T and of z y^T.

    n_out, n_in: lengths of z, what is to be made up for, and of y, what enters now.
    """

    def __init__(self, n_out: int, n_in: int, threads: int | None = None) -> None:
        self._threads = threads
        self._hessian, self._moved = np.zeros((n_in, n_in), np.float32), np.zeros((n_out, n_in), np.float32)
        self._n_tokens = 0

    @property
    def enough(self) -> bool:
        """Say whether there are enough tokens to correct by."""
        return self._n_tokens >= ENOUGH * len(self._hessian)

    def add(self, inputs: NDArray[np.float32], missing: NDArray[np.float32]) -> None:
        """Add tokens: their y, (n_tokens, n_in), and their z, (n_tokens, n_out)."""
        add_products(inputs, missing, self._hessian, self._moved, threads=self._threads)
        self._n_tokens += len(inputs)

    def solution(self, dampening: float) -> NDArray[np.float32]:
        """Return E[z y^T] (E[y y^T] + dampening * mean diagonal * I)^-1, (n_out, n_in); uses up the sums.

        dampening: what is added to the diagonal of the Hessian of y, in units of its mean.
        """
        _core.solve_damped(self._hessian, self._moved, dampening)
        return self._moved


def portions(n_tokens: int) -> Iterator[slice]:
    """Cut tokens into portions that are summed up together."""
    for begin in range(0, n_tokens, PORTION):
        yield slice(begin, begin + PORTION)


class Correction:
    """Change that a matrix needs for inputs that were others and are these now.

    n_in: how long an input is.
    """

    def __init__(self, n_in: int, threads: int | None = None) -> None:
        self._sums = Sums(n_in, n_in, threads)

    @property
    def enough(self) -> bool:
        """Say whether there are enough tokens to correct by."""
        return self._sums.enough

    def add(self, original: NDArray[np.float32], changed: NDArray[np.float32]) -> None:
        """Add tokens' inputs, (n_tokens, n_in)."""
        for part in portions(len(original)):
            self._sums.add(changed[part], original[part] - changed[part])

    def result(self, dampening: float) -> NDArray[np.float32]:
        """Return what a matrix W has to change by, as W @ result.

        It then gives of changed inputs what it gave of the original ones, in the least squares over all
        tokens.

        Parameters
        ----------
        dampening
            What is added to the diagonal of the changed inputs' Hessian, in units of its mean.

        Returns
        -------
        (n_in, n_in) float32
            With x the original inputs and y the changed ones,
            E[(x - y) y^T] (E[y y^T] + dampening * mean diagonal * I)^-1.
        """
        return self._sums.solution(dampening)


class Corrections:
    """Changes that a matrix needs, or the matrices of experts, each by the tokens that are sent to it now.

    n_experts, n_in: how many experts there are, 1 for a matrix that all tokens enter; and how long an input
    is.
    """

    def __init__(self, n_experts: int, n_in: int, threads: int | None = None) -> None:
        self._sums = [Correction(n_in, threads) for _ in range(n_experts)]

    def add(
        self,
        original: NDArray[np.float32],
        changed: NDArray[np.float32],
        original_experts: NDArray[np.int32] | None = None,
        changed_experts: NDArray[np.int32] | None = None,
    ) -> None:
        """Add tokens.

        original, changed: (n_tokens, n_in). For experts (n_tokens, 1, n_in), what enters all that a token is
        sent to, which is known of all; or (n_tokens, n_used, n_in), what enters each. Of these, the tokens
        count that were sent to the expert in both passes.
        original_experts, changed_experts: (n_tokens, n_used): the experts; None if there are none.
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

    def results(self, dampening: float) -> list[NDArray[np.float32] | None]:
        """Return each expert's change, as `Correction.result` does; None where there are too few tokens."""
        return [sums.result(dampening) if sums.enough else None for sums in self._sums]
