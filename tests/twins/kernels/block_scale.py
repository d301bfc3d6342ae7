"""A block's scale and its codes on a grid: twin of csrc/kernels/block_scale.h."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def grid_q4_0(x: NDArray[np.float32]) -> tuple[NDArray[np.float16], NDArray[np.int8]]:
    """Quantize blocks by Q4_0's rule.

    The weight of largest magnitude, the first one of equals, becomes -8. Halves round up: 8.5 is added,
    and the fraction of the sum, which is above 0, is cut off.

    Parameters
    ----------
    x : (n, 32) float32
        Blocks of weights.

    Returns
    -------
    scales : (n,) float16
    codes : (n, 32) int8
        From -8 to 7.

    Raises
    ------
    ValueError
        If a block holds an infinity or a NaN, or its scale is beyond fp16. The first such block is named.

    Notes
    -----
    Source: `quantize_row_q4_0_ref` of ggml-quants.c.
    """
    first = np.abs(x).argmax(axis=1, keepdims=True)
    extreme = np.take_along_axis(x, first, axis=1) + np.float32(0)  # -0 + 0 is 0
    d = extreme / np.float32(-8)  # of a block of zeros -0, whose fp16 is 0x8000
    scales = _check(x, d)
    codes = np.trunc(_scaled(x, d, overflow=-8) + np.float32(8.5)).clip(max=15) - 8
    return scales, codes.astype(np.int8)


def grid_q8_0(x: NDArray[np.float32]) -> tuple[NDArray[np.float16], NDArray[np.int8]]:
    """Quantize blocks by Q8_0's rule.

    The largest magnitude becomes 127 or -127. Halves round away from zero, as C's roundf does; a double
    holds the sum that decides this exactly.

    Parameters
    ----------
    x : (n, 32) float32
        Blocks of weights.

    Returns
    -------
    scales : (n,) float16
    codes : (n, 32) int8
        From -127 to 127.

    Raises
    ------
    ValueError
        If a block holds an infinity or a NaN, or its scale is beyond fp16. The first such block is named.

    Notes
    -----
    Source: `quantize_row_q8_0_ref` of ggml-quants.c.
    """
    d = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    scales = _check(x, d)
    scaled = _scaled(x, d, overflow=0).astype(np.float64)
    return scales, np.trunc(scaled + np.copysign(0.5, scaled)).astype(np.int8)


def _scaled(x: NDArray[np.float32], d: NDArray[np.float32], overflow: int) -> NDArray[np.float32]:
    # x times the inverse of d, as upstream has it: the quotient x / d rounds differently. Where d is
    # so small that its inverse is infinite, upstream converts infinities and NaNs to int8, which on
    # x86 stores code 0; `overflow` is the number that ends as that code.
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        inverse = np.where(d != 0, np.float32(1) / d, np.float32(0))
        return np.where(np.isinf(inverse), np.float32(overflow), x * inverse)


def _check(x: NDArray[np.float32], d: NDArray[np.float32]) -> NDArray[np.float16]:
    # Round scales to fp16, to nearest even. ValueError names the first block with an infinity, a NaN or
    # a scale beyond fp16.
    with np.errstate(over="ignore", invalid="ignore"):
        scales = d[:, 0].astype(np.float16)
    bad = ~(np.isfinite(x).all(axis=1) & np.isfinite(scales))
    if bad.any():
        raise ValueError(f"block {bad.argmax()} has no fp16 scale")
    return scales


GRIDS = {"q4_0": grid_q4_0, "q8_0": grid_q8_0}
