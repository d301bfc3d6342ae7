"""Measure what counting alone achieves: an n-gram model with interpolated Kneser-Ney smoothing.

A language model that does not beat it has learned nothing that a table of counts does not know.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BITS = 12  # of a token; five of them fit into a key of 64 bits


class NGram:
    """order: tokens in the longest n-grams counted, 1 to 5."""

    def __init__(self, tokens: NDArray[np.integer], *, order: int, n_vocab: int) -> None:
        if not 1 <= order <= 64 // BITS or n_vocab > 1 << BITS:
            raise ValueError(f"an n-gram of {order} out of {n_vocab} tokens needs a key of more than 64 bits")
        self.order, self.n_vocab = order, n_vocab
        keys, counts = np.unique(_keys(tokens, order), return_counts=True)
        self.levels = [_Level(keys, counts)]
        # A word counts, below the highest order, once for each different word before it.
        for n in range(order - 1, 0, -1):
            keys, counts = np.unique(keys & _mask(n), return_counts=True)
            self.levels.insert(0, _Level(keys, counts))

    def probabilities(self, tokens: NDArray[np.integer]) -> NDArray[np.float64]:
        """(n - order + 1,) of each token given the order - 1 before it."""
        keys = _keys(tokens, self.order)
        p = np.full(len(keys), 1 / self.n_vocab)
        for n, level in enumerate(self.levels, 1):
            p = level.interpolated(keys & _mask(n), p)
        return p


class _Level:
    """n-grams of one length: keys, sorted; how often each occurs; and the same of their histories."""

    def __init__(self, keys: NDArray[np.uint64], counts: NDArray[np.int64]) -> None:
        self.keys, self.counts = keys, counts
        once, twice = (counts == 1).sum(), (counts == 2).sum()
        self.discount = once / max(once + 2 * twice, 1)
        self.histories, first = np.unique(keys >> np.uint64(BITS), return_index=True)
        self.history_counts = np.add.reduceat(counts, first)
        self.followers = np.diff(np.append(first, len(keys)))

    def interpolated(self, keys: NDArray[np.uint64], lower: NDArray[np.float64]) -> NDArray[np.float64]:
        history = keys >> np.uint64(BITS)
        total = _look_up(self.histories, self.history_counts, history)
        followers = _look_up(self.histories, self.followers, history)
        count = _look_up(self.keys, self.counts, keys)
        seen = np.maximum(count - self.discount, 0) + self.discount * followers * lower
        return np.where(total > 0, seen / np.maximum(total, 1), lower)


def _mask(n: int) -> np.uint64:
    return np.uint64((1 << BITS * n) - 1)


def _keys(tokens: NDArray[np.integer], order: int) -> NDArray[np.uint64]:
    """Each n-gram as one number, the last token in the lowest bits."""
    tokens = tokens.astype(np.uint64)
    n = len(tokens) - order + 1
    keys = np.zeros(n, np.uint64)
    for i in range(order):
        keys = keys << np.uint64(BITS) | tokens[i : i + n]
    return keys


def _look_up(
    keys: NDArray[np.uint64], values: NDArray[np.int64], wanted: NDArray[np.uint64]
) -> NDArray[np.int64]:
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], 0)
