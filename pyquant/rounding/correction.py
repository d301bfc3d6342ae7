"""Compute what a matrix has to change by when its inputs have changed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.products import add_products, portions
from pyquant.calibration.routed_tokens import RoutedTokens
from pyquant.machine.cpu import n_threads

ENOUGH = 8  # tokens for each column of a matrix; fewer do more harm by chance than good


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
        _core.solve_damped(self._hessian, self._moved, dampening, n_threads=n_threads(self._threads))
        return self._moved


class Correction:
    """Change that a matrix needs for inputs that were others and are these now.

    n_in: how long an input is.
    """

    def __init__(self, n_in: int, threads: int | None = None) -> None:
        self._sums = Sums(n_in, n_in, threads)

    def add(self, original: NDArray[np.float32], changed: NDArray[np.float32]) -> None:
        """Add tokens' inputs, (n_tokens, n_in)."""
        for part in portions(len(original)):
            self._sums.add(changed[part], original[part] - changed[part])

    def result(self, dampening: float) -> NDArray[np.float32] | None:
        """Return what a matrix W has to change by, as W @ result; None where there are too few tokens.

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
        return self._sums.solution(dampening) if self._sums.enough else None


class ExpertCorrections:
    """Changes that matrices of experts need, each by the tokens that are sent to the expert now.

    original, changed: inputs of the same tokens, in the model and in its copy.
    """

    def __init__(self, original: RoutedTokens, changed: RoutedTokens, threads: int | None = None) -> None:
        self._original, self._changed, self._threads = original, changed, threads

    def result(self, expert: int, dampening: float) -> NDArray[np.float32] | None:
        """Return an expert's change, as `Correction.result` does; None where there are too few tokens.

        What enters all experts alike is known of every token. Of what each expert makes, the tokens count
        that were sent to it in both passes.
        """
        token, place = self._changed.sent_to(expert)
        before = np.zeros_like(place)
        if self._original.inputs.shape[1] > 1:
            met, before = np.nonzero(self._original.experts[token] == expert)
            token, place = token[met], place[met]
        if len(token) < ENOUGH * self._original.inputs.shape[2]:
            return None
        correction = Correction(self._original.inputs.shape[2], self._threads)
        for part in portions(len(token)):
            original = self._original.inputs[token[part], before[part]]
            correction.add(original, self._changed.inputs[token[part], place[part]])
        return correction.result(dampening)
