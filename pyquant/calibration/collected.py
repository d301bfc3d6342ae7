"""Hessians of one stage's inputs, collected while a model is rounded: those of no other are in memory."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pyquant.calibration.panels import mirror
from pyquant.calibration.products import add_products


class Collected(Protocol):
    """What is known of an input that one or more matrices share."""

    @property
    def first(self) -> NDArray[np.float32] | None:
        """The mean of x over the first tokens of chunks, (n_in,); None for experts."""

    def hessian(self, expert: int) -> NDArray[np.float32] | None:
        """Give the mean of x x^T over the tokens of an expert, (n_in, n_in); None if it has none.

        It may be the sums' own array, which nobody else is to change.
        """


class OfAllTokens:
    """Sums over tokens that all enter the same matrices.

    n_in: how long an input is. n_ctx: tokens of a chunk.
    """

    def __init__(self, n_in: int, n_ctx: int, threads: int | None = None) -> None:
        self._n_ctx, self._threads = n_ctx, threads
        self._hessian, self._first = np.zeros((n_in, n_in), np.float32), np.zeros((1, n_in), np.float32)
        self._n_tokens, self._is_mean = 0, False

    def add(self, inputs: NDArray[np.float32], experts: NDArray[np.int32] | None = None) -> None:
        """Add the tokens of some chunks, (n_tokens, n_in), which are sent to no experts."""
        assert experts is None
        assert not self._is_mean
        begins = (np.arange(len(inputs)) % self._n_ctx == 0).astype(np.float32)[:, None]
        add_products(inputs, begins, self._hessian, self._first, threads=self._threads)
        self._n_tokens += len(inputs)

    @property
    def first(self) -> NDArray[np.float32] | None:
        """See `Collected`."""
        return self._first[0] / np.float32(max(1, self._n_tokens // self._n_ctx))

    def hessian(self, expert: int) -> NDArray[np.float32] | None:
        """See `Collected`; no tokens can be added then."""
        if not self._n_tokens:
            return None
        if not self._is_mean:  # in place: of wide inputs it is the largest array there is
            self._hessian *= np.float32(1 / self._n_tokens)
            mirror(self._hessian)
            self._is_mean = True
        return self._hessian


class OfExperts:
    """Inputs of tokens that are sent to experts: an expert's Hessian is made when it is asked for."""

    first = None

    def __init__(self, n_in: int, threads: int | None = None) -> None:
        self._n_in, self._threads = n_in, threads
        self._pieces: list[tuple[NDArray[np.float32], NDArray[np.int32]]] = []

    def add(self, inputs: NDArray[np.float32], experts: NDArray[np.int32] | None) -> None:
        """Add the tokens of a piece.

        inputs: (n_tokens, 1, n_in), what enters all experts that a token is sent to; or (n_tokens, n_used,
        n_in), what enters each. experts: (n_tokens, n_used).
        """
        if experts is not None:
            self._pieces.append((inputs.copy(), experts.copy()))

    def hessian(self, expert: int) -> NDArray[np.float32] | None:
        """See `Collected`."""
        total, nothing = np.zeros((self._n_in, self._n_in), np.float32), np.zeros((1, self._n_in), np.float32)
        n_tokens = 0
        for inputs, experts in self._pieces:
            token, place = np.nonzero(experts == expert)
            rows = inputs[token, place if inputs.shape[1] > 1 else 0]
            if len(rows):
                add_products(
                    rows, np.zeros((len(rows), 1), np.float32), total, nothing, threads=self._threads
                )
            n_tokens += len(rows)
        if not n_tokens:
            return None
        total *= np.float32(1 / n_tokens)
        mirror(total)
        return total
