"""Numpy twins of csrc/gptq's searches for scales, bit for bit.

Everything is float32, and sums are added in the order of the kernels. Arrays have columns first and rows
last, as the kernels hold them in vectors: the weights x of n columns that share a scale are (n, n_rows), and
the weights w of their squared errors are (n,). A *level* is what a code stands for, in multiples of its
block's scale. The weight of a level is scale * level - minimum.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pyquant import _core

SUB = 32  # columns that are worked on together, and in most types share a scale
LARGEST = np.float32(3.0e38)

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

# Factors on the scale at which the extreme weight meets the first or the last level.
SCALE_FACTORS = [np.float32(0.76) + np.float32(f) * np.float32(0.05) for f in range(9)]


def fma(a: Floats, b: Floats, c: Floats) -> Floats:
    """Compute a * b + c, rounded once.

    The product is exact in float64. The sum is rounded to odd there, so that rounding it again, to float32,
    gives what rounding the exact sum gives (Boldo and Melquiond, 2008).

    Parameters
    ----------
    a, b, c : float32
        Arrays that can be broadcast together.

    Returns
    -------
    float32
        Of their common shape.
    """
    product = np.multiply(a, b, dtype=np.float64)
    total = product + c
    of_c = total - product
    rest = (product - (total - of_c)) + (c - of_c)  # what the sum left out, exactly (Knuth)
    to_odd = np.isfinite(rest) & (rest != 0) & (total.view(np.int64) % 2 == 0)
    return np.where(to_odd, np.nextafter(total, np.copysign(np.inf, rest)), total).astype(np.float32)


def inverse(x: Floats) -> Floats:
    """Compute 1 / x, and 0 where x is 0; float32 of the same shape."""
    return np.where(x != 0, np.float32(1) / x, np.float32(0))


def clip(x: Floats, low: float, high: float) -> Floats:
    """Limit numbers to a range.

    Parameters
    ----------
    x : float32
        Of any shape.
    low, high : float
        Ends of the range.

    Returns
    -------
    float32
        Of the same shape. A NaN becomes `low`.
    """
    x = np.where(x > low, x, np.float32(low))
    return np.where(x < high, x, np.float32(high))


def nearest(x: Floats) -> Floats:
    """Round to integers, halves to even; a result of 0 has no sign.

    Parameters
    ----------
    x : float32
        Numbers within +-2^22, of any shape.

    Returns
    -------
    float32
        Of the same shape.
    """
    shift = np.float32(1.5 * 2**23)
    return (x + shift) - shift


class Levels(Protocol):
    """Values that the codes of a block stand for, in multiples of its scale.

    Attributes
    ----------
    first, last : float32
        The lowest and the highest level.
    """

    first: np.float32
    last: np.float32

    def round(self, x: Floats) -> Floats:
        """Find the nearest level of each number; float32 of the same shape."""
        raise NotImplementedError

    def code(self, level: Floats) -> NDArray[np.uint8]:
        """Find the code of each level; uint8 of the same shape."""
        raise NotImplementedError


class IntegerLevels:
    """All integers from one to another; the first has code 0.

    Parameters
    ----------
    first, last : int
        The lowest and the highest level.
    """

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = np.float32(first), np.float32(last)

    def round(self, x: Floats) -> Floats:
        return nearest(clip(x, self.first, self.last))

    def code(self, level: Floats) -> NDArray[np.uint8]:
        return (level - self.first).astype(np.uint8)


class TableLevels:
    """The values of a table; a number halfway between two becomes the lower one.

    Parameters
    ----------
    values : (n,) int8
        Ascending.
    codes : (n,) uint8
        The code of each value.
    """

    def __init__(self, values: NDArray[np.int8], codes: NDArray[np.uint8]) -> None:
        self._values, self._codes = values.astype(np.float32), codes
        self._bounds = (self._values[1:] + self._values[:-1]) / 2
        self.first, self.last = self._values[0], self._values[-1]

    def _index(self, x: Floats) -> NDArray[np.int64]:
        return (x[..., None] > self._bounds).sum(axis=-1)

    def round(self, x: Floats) -> Floats:
        return self._values[self._index(x)]

    def code(self, level: Floats) -> NDArray[np.uint8]:
        return self._codes[self._index(level)]


def extreme_of(x: Floats) -> Floats:
    """Find the weight of largest magnitude, the first of several: (n, n_rows) float32 to (n_rows,)."""
    extreme = x[0]
    for k in range(1, len(x)):
        extreme = np.where(np.abs(x[k]) > np.abs(extreme), x[k], extreme)
    return extreme


def search_scale(x: Floats, w: Floats, levels: Levels) -> Floats:
    """Find a block's scale.

    Candidates put the weight of largest magnitude near the first or the last level. Each gives levels, and
    these give the scale that fits them best by least squares. The scale of least weighted error is taken.

    Parameters
    ----------
    x : (n, n_rows) float32
        Weights of a block of each row.
    w : (n,) float32
        Weights of squared errors.
    levels : Levels
        What codes stand for.

    Returns
    -------
    (n_rows,) float32
        A scale may be negative. It is 0 where all weights are.
    """
    extreme = extreme_of(x)
    tried = np.array([factor / end for end in (levels.first, levels.last) for factor in SCALE_FACTORS])
    inv = inverse(extreme * tried[:, None])
    xq, qq = np.zeros_like(inv), np.zeros_like(inv)
    for k in range(len(x)):
        q = levels.round(x[k] * inv)
        wq = w[k] * q
        xq = fma(wq, x[k], xq)
        qq = fma(wq, q, qq)
    fit = xq * inverse(qq)
    explained = fit * xq
    best, scale = np.full_like(extreme, -1), np.zeros_like(extreme)
    for f in range(len(tried)):
        better = explained[f] > best
        best = np.where(better, explained[f], best)
        scale = np.where(better, fit[f], scale)
    return scale


def search_scale_and_minimum(x: Floats, w: Floats, levels: IntegerLevels) -> tuple[Floats, Floats]:
    """Find a block's scale and its minimum, in the way of `search_scale`.

    Parameters
    ----------
    x : (n, n_rows) float32
        Weights of a block of each row.
    w : (n,) float32
        Weights of squared errors.
    levels : IntegerLevels
        From 0 on.

    Returns
    -------
    scale, minimum : (n_rows,) float32
        Neither is negative.
    """
    low, high, sum_x, sum_w = x[0], x[0], np.zeros_like(x[0]), np.float32(0)
    for k in range(len(x)):
        low = np.where(low < x[k], low, x[k])
        high = np.where(high > x[k], high, x[k])
        sum_x = sum_x + w[k] * x[k]
        sum_w = sum_w + w[k]
    low = np.where(low < 0, low, np.float32(0))
    steps = levels.last + np.float32(0.25) * np.arange(-4, 5, dtype=np.float32)
    inv = steps[:, None] * inverse(high - low)
    sum_c, sum_cc, sum_xc = np.zeros_like(inv), np.zeros_like(inv), np.zeros_like(inv)
    for k in range(len(x)):
        c = levels.round((x[k] - low) * inv)
        wc = w[k] * c
        sum_c += wc
        sum_cc = fma(wc, c, sum_cc)
        sum_xc = fma(wc, x[k], sum_xc)
    inverse_determinant = inverse(sum_w * sum_cc - sum_c * sum_c)
    scale = (sum_w * sum_xc - sum_x * sum_c) * inverse_determinant
    offset = (sum_cc * sum_x - sum_c * sum_xc) * inverse_determinant
    above = offset > 0
    scale = np.where(above, sum_xc * inverse(sum_cc), scale)
    offset = np.where(above, np.float32(0), offset)
    error = scale * (scale * sum_cc - 2 * sum_xc) + offset * (offset * sum_w - 2 * sum_x)
    error = error + 2 * scale * offset * sum_c
    best, chosen, minimum = np.full_like(low, LARGEST), np.zeros_like(low), np.zeros_like(low)
    for f in range(len(steps)):
        better = (error[f] < best) & (scale[f] >= 0)
        best = np.where(better, error[f], best)
        chosen = np.where(better, scale[f], chosen)
        minimum = np.where(better, -offset[f], minimum)
    return chosen, minimum


def find_positions(x: Floats, w: Floats, values: NDArray[np.int8]) -> NDArray[np.float64]:
    """Sum up where weights lie in multiples of their block's scale: what a table is learned from.

    Parameters
    ----------
    x : (n_rows, n_per_row) float32
        Weights.
    w : (n_per_row,) float32
        Weights of squared errors.
    values : (16,) int8
        The table so far, ascending, by which scales are chosen.

    Returns
    -------
    (4096,) float64
        By the weight's position, in bins from -128 on, the sum of w scale^2. Equal to the kernel's up to the
        order of summation.
    """
    levels = TableLevels(values, np.zeros(len(values), np.uint8))
    sums = np.zeros(256 * _core.BINS_PER_LEVEL)
    with np.errstate(all="ignore"):
        for at in range(0, x.shape[1], SUB):
            block, of_block = x[:, at : at + SUB].T, w[at : at + SUB]
            scale = search_scale(block, of_block, levels)
            place = block * inverse(scale)
            place = clip(place, -127.99, 127.99)
            bins = ((place + np.float32(128)) * np.float32(_core.BINS_PER_LEVEL)).astype(np.int32)
            np.add.at(sums, bins, (of_block[:, None] * (scale * scale)).astype(np.float64))
    return sums
