"""Hessians of one stage's inputs, collected while a model is rounded: those of no other are in memory."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pyquant.calibration.panels import mirror
from pyquant.calibration.products import add_products, portions
from pyquant.calibration.routed_tokens import RoutedTokens
from pyquant.calibration.shrinkage import sampled_columns, shrink, shrink_to_diagonal


class Collected(Protocol):
    """What is known of an input that one or more matrices share."""

    @property
    def first(self) -> NDArray[np.float32] | None:
        """The mean of x over the first tokens of chunks, (n_in,); None for experts."""

    def hessian(self, expert: int) -> NDArray[np.float32] | None:
        """Give the mean of x x^T over an expert's tokens, shrunk as few of them need, (n_in, n_in).

        None if nothing is known. It may be the sums' own array, which nobody else is to change.
        """


def text_of_each(n_tokens: int, texts: NDArray[np.int32] | None) -> NDArray[np.int32] | None:
    """Say which text tokens are of; texts: of each chunk. Of all chunks as many tokens enter a matrix."""
    return None if texts is None else np.repeat(texts, n_tokens // len(texts))


class OfAllTokens:
    """Sums over tokens that all enter the same matrices.

    n_in: how long an input is. n_ctx: tokens of a chunk.
    texts: the text that each chunk is of, for `shrink_to_diagonal`; None: all are of one.
    """

    def __init__(
        self, n_in: int, n_ctx: int, threads: int | None = None, texts: NDArray[np.int32] | None = None
    ) -> None:
        self._n_ctx, self._threads, self._texts = n_ctx, threads, texts
        self._hessian, self._first = np.zeros((n_in, n_in), np.float32), np.zeros((1, n_in), np.float32)
        self._n_tokens, self._is_mean, self._columns = 0, False, sampled_columns(n_in)
        self._sample: list[NDArray[np.float32]] = []

    def add(self, inputs: NDArray[np.float32], experts: NDArray[np.int32] | None = None) -> None:
        """Add the tokens of some chunks, (n_tokens, n_in), which are sent to no experts."""
        assert experts is None
        assert not self._is_mean
        begins = (np.arange(len(inputs)) % self._n_ctx == 0).astype(np.float32)[:, None]
        add_products(inputs, begins, self._hessian, self._first, threads=self._threads)
        self._n_tokens += len(inputs)
        self._sample.append(inputs[:, self._columns])

    @property
    def first(self) -> NDArray[np.float32] | None:
        """See `Collected`."""
        return self._first[0] / np.float32(max(1, self._n_tokens // self._n_ctx))

    def hessian(self, expert: int) -> NDArray[np.float32] | None:
        """See `Collected`; shrunk towards its diagonal. No tokens can be added then."""
        if not self._n_tokens:
            return None
        if not self._is_mean:  # in place: of wide inputs it is the largest array there is
            self._hessian *= np.float32(1 / self._n_tokens)
            mirror(self._hessian)
            sample, n_chunks = np.concatenate(self._sample), max(2, self._n_tokens // self._n_ctx)
            shrink_to_diagonal(self._hessian, sample, n_chunks, text_of_each(len(sample), self._texts))
            self._is_mean = True
        return self._hessian


class OfExperts:
    """Inputs of tokens that are sent to experts: an expert's Hessian is made when it is asked for.

    tokens: where they are kept; empty. n_ctx: tokens of a chunk.
    alike: whether experts get the same inputs. Then an expert's Hessian is shrunk towards that of all tokens,
    and an expert that no token came to has that. Else it is shrunk towards its diagonal: what enters ffn_down
    are the expert's own neurons, which others do not have.
    texts: as for `OfAllTokens`, for the Hessian of all tokens: an expert has few of a text.
    """

    first = None

    def __init__(
        self,
        tokens: RoutedTokens,
        n_ctx: int,
        alike: bool,
        threads: int | None = None,
        texts: NDArray[np.int32] | None = None,
    ) -> None:
        self._tokens, self._n_ctx, self._alike, self._threads = tokens, n_ctx, alike, threads
        self._texts = texts

    def add(self, inputs: NDArray[np.float32], experts: NDArray[np.int32] | None) -> None:
        """Add the tokens of a piece, as `RoutedTokens.add` takes them."""
        self._tokens.add(inputs, experts)

    def hessian(self, expert: int) -> NDArray[np.float32] | None:
        """See `Collected`; the array is a new one."""
        rows = self._tokens.rows(expert)
        common = self._common if self._alike else None
        if not len(rows):
            return None if common is None else common.copy()
        hessian = self._mean(rows)
        sample = rows[:, sampled_columns(rows.shape[1])]
        if common is None:
            shrink_to_diagonal(hessian, sample, self._n_chunks)
        else:
            size = hessian.trace() / max(common.trace(), np.finfo(np.float32).tiny)
            shrink(hessian, common * size, sample, self._n_chunks)
        return hessian

    @property
    def _n_chunks(self) -> int:
        return max(2, len(self._tokens.inputs) // self._n_ctx)

    @cached_property
    def _common(self) -> NDArray[np.float32] | None:
        """The Hessian of all tokens; None if there are none."""
        rows = self._tokens.inputs[:, 0]
        if not len(rows):
            return None
        hessian = self._mean(rows)
        texts = text_of_each(len(rows), self._texts)
        shrink_to_diagonal(hessian, rows[:, sampled_columns(rows.shape[1])], self._n_chunks, texts)
        return hessian

    def _mean(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        n_in = rows.shape[1]
        total, nothing = np.zeros((n_in, n_in), np.float32), np.zeros((1, n_in), np.float32)
        for part in portions(len(rows)):
            first = np.zeros((len(rows[part]), 1), np.float32)
            add_products(rows[part], first, total, nothing, threads=self._threads)
        total *= np.float32(1 / len(rows))
        mirror(total)
        return total
