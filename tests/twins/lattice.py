"""Numpy twins of csrc/gptq/lattice.h, bit for bit: scales of which a block's weights are multiples.

Arrays are those of `tests.twins.scale_search`.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from tests.twins.formats.base import Format, OneScale, as_halves
from tests.twins.scale_search import LARGEST, SUB, Floats, IntegerLevels, Levels, extreme_of, fma, inverse


def on_lattice(form: Format, bits: int) -> Format:
    """Make a format whose scales are found in this way; bits: of the weights' significands."""
    result = copy(form)
    if isinstance(form, OneScale):
        result.trials = lambda _, x, __: np.stack([lattice_scale(x, form.levels, bits), 0 * x[0]])[None]
    else:
        result.trials = lambda _, x, __: np.stack(lattice_scale_and_minimum(x, form.levels))[None]
    return result


def rounded_to(x: Floats, bits: int) -> tuple[Floats, Floats]:
    """Find the numbers that become x where significands are rounded to some bits.

    Parameters
    ----------
    x : float32
        Of any shape.
    bits : int
        Bits of a significand; 11 are those of F16, which has no step below 2^-24.

    Returns
    -------
    middle, half : float32
        The interval's middle, and half of its length.
    """
    power = (x.view(np.int32) & 0x7F800000).view(np.float32)
    least = np.float32(2.0**-25 if bits == 11 else 0)
    half = np.maximum(power * np.float32(0.5**bits), least)
    uneven = (np.abs(x) == power) & (half > least)  # below a power of two steps are half as wide
    middle = np.where(uneven, x + x * np.float32(0.25 * 0.5**bits), x)
    return middle, np.where(uneven, np.float32(0.75) * half, half)


def lattice_scale(x: Floats, levels: Levels, bits: int) -> Floats:
    """Find a block's scale: each level may be that of its extreme weight.

    Parameters
    ----------
    x : (32, n_rows) float32
        Weights of a block of each row.
    levels : Levels
        What codes stand for, integers.
    bits : int
        Bits of the weights' significands. Each weight has an interval of scales that give it back.

    Returns
    -------
    (n_rows,) float32
        An fp16, which may be negative.
    """
    extreme = extreme_of(x)
    x_middle, x_half = rounded_to(x, bits)
    least, scale = np.full_like(extreme, LARGEST), np.zeros_like(extreme)
    for level in np.arange(levels.first, levels.last + 1, dtype=np.float32):
        if level == 0 or levels.round(level) != level:
            continue
        code = levels.round(x * inverse(extreme * (np.float32(1) / level)))
        per_code = inverse(code)
        middle, half = x_middle * per_code, x_half * np.abs(per_code)
        low = np.where(code != 0, middle - half, -LARGEST).max(axis=0)
        high = np.where(code != 0, middle + half, LARGEST).min(axis=0)
        fit = as_halves((low + high) * np.float32(0.5))
        missed = np.abs(x_middle - fit * code) - x_half
        error = np.zeros_like(extreme)
        for k in range(SUB):
            error = error + np.where(missed[k] > 0, missed[k], np.float32(0))
        better = error < least
        least, scale = np.where(better, error, least), np.where(better, fit, scale)
    return scale


def lattice_scale_and_minimum(x: Floats, levels: IntegerLevels) -> tuple[Floats, Floats]:
    """Find a block's scale and its minimum: how many steps its weights span, and the code of the lowest.

    Parameters
    ----------
    x : (32, n_rows) float32
        Weights of a block of each row.
    levels : IntegerLevels
        From 0 on.

    Returns
    -------
    scale, minimum : (n_rows,) float32
        Both are fp16.
    """
    low, n = x.min(axis=0), np.float32(SUB)
    above, sum_x = x - low, np.zeros_like(low)
    for k in range(SUB):
        sum_x = sum_x + above[k]
    least, scale, minimum = np.full_like(low, LARGEST), np.zeros_like(low), np.zeros_like(low)
    highest = int(levels.last)
    for steps in range(1, highest + 1):
        code = levels.round(above * inverse((x.max(axis=0) - low) * (np.float32(1) / np.float32(steps))))
        sum_c, sum_cc, sum_xc, spread = (np.zeros_like(low) for _ in range(4))
        for k in range(SUB):
            sum_c = sum_c + code[k]
            sum_cc, sum_xc = fma(code[k], code[k], sum_cc), fma(code[k], above[k], sum_xc)
        fit = as_halves((n * sum_xc - sum_x * sum_c) * inverse(n * sum_cc - sum_c * sum_c))
        offset = (sum_x - fit * sum_c) * (1 / n)
        for k in range(SUB):
            missed = above[k] - offset - fit * code[k]
            spread = fma(missed, missed, spread)
        for lowest in range(highest - steps + 1):
            wanted = fit * np.float32(lowest) - offset - low
            stored = as_halves(wanted)
            error = fma(n * (stored - wanted), stored - wanted, spread)
            better = error < least
            least = np.where(better, error, least)
            scale, minimum = np.where(better, fit, scale), np.where(better, stored, minimum)
    return scale, minimum
