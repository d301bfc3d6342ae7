"""Compute the numbers that describe codes and errors."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

TOLD = 1e-10  # ratio of squared lengths, below which float64 loses the angle between them
RUN_BINS = 16  # lengths 1..15, and 16 or more in the last


def rmse(squared_error: float, n_weights: float) -> float:
    """Give the root of the mean squared error, in units of weights: sqrt(sum e^2 / n)."""
    return math.sqrt(squared_error / n_weights)


def bits_per_weight(n_bytes: int, n_weights: int) -> float | None:
    """Give 8 n_bytes / n_weights; None for no weights, as in a file of a vocabulary alone."""
    return 8 * n_bytes / n_weights if n_weights else None


def snr_db(squared_weight: float, squared_error: float) -> float | None:
    """Give the ratio of signal to quantization noise, 10 log10(sum x^2 / sum e^2), in dB.

    None where one of the sums is 0.
    """
    if squared_weight == 0 or squared_error == 0:
        return None
    return 10 * math.log10(squared_weight / squared_error)


def cosine(squared_weight: float, squared_value: float, squared_error: float) -> float | None:
    """Give the cosine of the angle between weights x and what became of them, y.

    Parameters
    ----------
    squared_weight, squared_value, squared_error
        Sums of x^2, y^2 and (x - y)^2. Next to 1, where it matters, they lose nothing to cancellation, as
        a sum of products would.

    Returns
    -------
    -1..1; None where x or y is all zeros, or so much smaller than the other that the sums do not tell.
    """
    if squared_weight == 0 or squared_value == 0:
        return None
    if not TOLD < squared_value / squared_weight < 1 / TOLD:
        return None
    # |x - y|^2 = (|x| - |y|)^2 + 2 |x| |y| (1 - cosine)
    x, y = math.sqrt(squared_weight), math.sqrt(squared_value)
    return min(1.0, max(-1.0, 1 - (squared_error - (x - y) ** 2) / (2 * x * y)))


def entropy(counts: ArrayLike) -> float:
    """Give the order-0 entropy of codes with these counts, in bits per code; 0 where nothing was counted."""
    counts = np.asarray(counts, dtype=float)
    shares = counts[counts > 0] / max(counts.sum(), 1)
    return float(max(0.0, -(shares * np.log2(shares)).sum()))


def geometric_runs(zero_share: float) -> NDArray[np.float64]:
    """Give the shares of run lengths if zeros came independently: the geometric law.

    A run goes on with the zeros' share p: P(length = k) = p^(k - 1) (1 - p), P(length >= 16) = p^15.

    Returns
    -------
    (16,) float64
        Shares of runs of length 1..15 and of 16 or more.
    """
    at_least = float(zero_share) ** np.arange(RUN_BINS)
    return np.append(-np.diff(at_least), at_least[-1])


def shares(counts: ArrayLike) -> NDArray[np.float64]:
    """Divide counts by their sum; zeros where nothing was counted."""
    counts = np.asarray(counts, dtype=float)
    return counts / max(counts.sum(), 1)
