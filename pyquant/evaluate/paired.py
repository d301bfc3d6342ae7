"""Differences between models on the same tokens: they tell two files apart whose own errors overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from pyquant.evaluate.kld import ERRORS


@dataclass(frozen=True)
class PairedDifference:
    """Mean KLD of a model less that of another one, in nats.

    error: one standard error, from the differences of whole chunks, whose tokens are not independent.
    apart: whether the difference is more than two of it.
    """

    model: str
    other: str
    difference: float
    error: float
    apart: bool


def paired_differences(
    names: Sequence[str], kld: Sequence[NDArray[np.float64]], chunks: NDArray[np.intp]
) -> list[PairedDifference]:
    """Compare each two models.

    names: of the models.
    kld: (n,) of each, token by token.
    chunks: (n,): which chunk each token is of.
    """
    pairs = combinations(zip(names, kld), 2)
    return [_pair(model, other, ours - theirs, chunks) for (model, ours), (other, theirs) in pairs]


def _pair(model: str, other: str, apart: NDArray[np.float64], chunks: NDArray[np.intp]) -> PairedDifference:
    mean, error = mean_of_chunks(apart, chunks)
    return PairedDifference(model, other, mean, error, abs(mean) > ERRORS * error)


def mean_of_chunks(values: NDArray[np.float64], chunks: NDArray[np.intp]) -> tuple[float, float]:
    """Return the mean of all tokens, and its standard error if chunks are drawn, not tokens.

    It is that of a ratio, sums of chunks over their tokens: chunks may differ in length. With one chunk
    tokens are taken for independent.
    """
    n_tokens = np.bincount(chunks)
    n_tokens, sums = n_tokens[n_tokens > 0], np.bincount(chunks, values)[n_tokens > 0]
    mean, n = float(values.mean()), len(n_tokens)
    if n == 1:
        return mean, math.sqrt(values.var() / max(len(values) - 1, 1))
    spread = np.square(sums - mean * n_tokens).sum() * n / (n - 1)
    return mean, math.sqrt(spread) / len(values)
