"""How far shares of hits may be chance."""

from __future__ import annotations

import math

NORMAL_95 = 1.959964  # standard errors of a normal distribution that hold 95 %


def wilson(n_hits: int, n: int) -> tuple[float, float]:
    """Give the interval from 0 to 1 that holds a share with 95 % confidence (Wilson, 1927).

    Of hits in n trials; (0, 1) where there are no trials.
    """
    if n == 0:
        return 0.0, 1.0
    share, z = n_hits / n, NORMAL_95
    center = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # Rounding would leave the share outside of its own interval.
    low = 0.0 if n_hits == 0 else (center - half) / scale
    high = 1.0 if n_hits == n else (center + half) / scale
    return low, high


def mcnemar(n_first: int, n_second: int) -> float:
    """Give the p-value of McNemar's exact test (1947): how likely pairs differ so unevenly by chance.

    n_first and n_second are the pairs in which only the first, or only the second, is a hit. Two-sided, from
    0 to 1; 1 where no pair differs.
    """
    n = n_first + n_second
    tail = sum(math.comb(n, k) for k in range(min(n_first, n_second) + 1))
    return min(1.0, 2 * tail / 2**n)
