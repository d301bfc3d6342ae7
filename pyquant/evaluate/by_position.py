"""KLD by position: where along the context it grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyquant.evaluate.kld import mean_and_error

MOST_SPANS = 32


@dataclass(frozen=True)
class Span:
    """The mean KLD of each candidate at positions first..last of all chunks, in nats.

    error: one standard error of each. n_tokens: scored tokens there.
    """

    first: int
    last: int
    n_tokens: int
    kld: list[float]
    error: list[float]


def kld_by_position(kld: Sequence[NDArray[np.float64]], positions: NDArray[np.intp]) -> list[Span]:
    """Cut a context into spans of equal length, at most 32; those without a scored token are left out.

    kld: (n,) of each candidate, token by token.
    positions: (n,): of the tokens in their chunks.
    """
    low, high = int(positions.min()), int(positions.max()) + 1
    length = -(-(high - low) // MOST_SPANS)
    spans = []
    for first in range(low, high, length):
        here = (positions >= first) & (positions < first + length)
        if here.any():
            means = [mean_and_error(own[here]) for own in kld]
            last = min(first + length, high) - 1
            errors = [error for _, error in means]
            spans.append(Span(first, last, int(here.sum()), [mean for mean, _ in means], errors))
    return spans
