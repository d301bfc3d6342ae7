"""Compute what a matrix has to change by when its inputs have changed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.products import add_products, multiply, portions
from pyquant.calibration.routed_tokens import RoutedTokens

ENOUGH = 1  # tokens for each column of a matrix; of fewer next to nothing is learnt
HELD_OUT = 16  # one token of so many is not fitted: it shows how much of a change holds of others


class Sums:
    """Sums over tokens by which a matrix is changed, in least squares: of y y^T and of z y^T.

    Few tokens for each column fit their own noise as well. So some are held out, and the change is followed
    as far as it makes up for what these lack.

    n_out, n_in: lengths of z, what is to be made up for, and of y, what enters now.
    """

    def __init__(self, n_out: int, n_in: int, threads: int | None = None) -> None:
        self._threads = threads
        self._hessian, self._moved = np.zeros((n_in, n_in), np.float32), np.zeros((n_out, n_in), np.float32)
        self._held: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = []

    def add(self, inputs: NDArray[np.float32], missing: NDArray[np.float32]) -> None:
        """Add tokens: their y, (n_tokens, n_in), and their z, (n_tokens, n_out); the last are held out."""
        fitted = len(inputs) - len(inputs) // HELD_OUT
        self._held.append((inputs[fitted:].copy(), missing[fitted:].copy()))
        add_products(inputs[:fitted], missing[:fitted], self._hessian, self._moved, threads=self._threads)

    def solution(self, dampening: float) -> NDArray[np.float32] | None:
        """Return a E[z y^T] (E[y y^T] + dampening * mean diagonal * I)^-1, (n_out, n_in); uses up the sums.

        a: what is best on tokens held out, less its standard error; None where that leaves nothing.
        dampening: what is added to the diagonal of the Hessian of y, in units of its mean.
        """
        _core.solve_damped(self._hessian, self._moved, dampening)
        strength = self._strength()
        if strength <= 0:
            return None
        self._moved *= np.float32(strength)
        return self._moved

    def _strength(self) -> float:
        """Return the a that minimizes the sum of |z - a d|^2 over tokens held out, less its standard error.

        d: what the change gives of y.
        """
        along, size = [np.zeros(1)], [np.zeros(1)]
        for inputs, missing in self._held:
            given = multiply(self._moved, inputs, threads=self._threads)
            along.append(np.einsum("to,to->t", given, missing, dtype=np.float64))
            size.append(np.einsum("to,to->t", given, given, dtype=np.float64))
        met, sizes = np.concatenate(along), np.concatenate(size)
        total = float(sizes.sum())
        if total == 0:
            return 0.0
        best = float(met.sum()) / total
        return best - math.sqrt(float(((met - best * sizes) ** 2).sum())) / total


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
        """Return what a matrix W has to change by, as W @ result; None where no change is known to help.

        It then gives of changed inputs what it gave of the original ones, in the least squares over all
        tokens.

        Parameters
        ----------
        dampening
            What is added to the diagonal of the changed inputs' Hessian, in units of its mean.

        Returns
        -------
        (n_in, n_in) float32
            With x the original inputs and y the changed ones, and a of `Sums.solution`,
            a E[(x - y) y^T] (E[y y^T] + dampening * mean diagonal * I)^-1.
        """
        return self._sums.solution(dampening)


class ExpertCorrections:
    """Changes that matrices of experts need, each by the tokens that are sent to the expert now.

    original, changed: inputs of the same tokens, in the model and in its copy.
    """

    def __init__(self, original: RoutedTokens, changed: RoutedTokens, threads: int | None = None) -> None:
        self._original, self._changed, self._threads = original, changed, threads

    def result(self, expert: int, dampening: float) -> NDArray[np.float32] | None:
        """Return an expert's change, as `Correction.result` does.

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
