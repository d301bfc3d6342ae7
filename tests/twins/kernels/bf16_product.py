"""Products of numbers in BF16 as x86-64's registers sum them up, in numpy.

Products are exact in float32; every sum is rounded. AVX-512 adds to a sum the product of a pair's second
numbers, then that of its first (VDPBF16PS in Intel's architecture manual). AMX sums up the products of first
numbers and those of second ones apart, over a step of 16 pairs (TDPBF16PS).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

STEP = 32  # numbers of AMX's registers
# Numbers whose products are summed up before they are added to others.
AMX_TOGETHER, AVX512_TOGETHER = 1024, 512


def multiply(x: NDArray[np.float32], w: NDArray[np.float32], *, amx: bool) -> NDArray[np.float32]:
    """(n_x, n_in) and (n_w, n_in), which BF16 can hold; n_in: a multiple of 32. Returns (n_x, n_w)."""
    together, sums = (AMX_TOGETHER, _sums_of_amx) if amx else (AVX512_TOGETHER, _sums_of_avx512)
    blocks = [
        sums(x[:, i : i + together].T[:, :, None], w[:, i : i + together].T[:, None])
        for i in range(0, x.shape[1], together)
    ]
    y = blocks[0]
    for block in blocks[1:]:
        y = y + block
    return y


def _sums_of_avx512(x: NDArray[np.float32], w: NDArray[np.float32]) -> NDArray[np.float32]:
    y = np.zeros((x.shape[1], w.shape[2]), np.float32)
    for i in range(0, len(x), 2):
        y += x[i + 1] * w[i + 1]
        y += x[i] * w[i]
    return y


def _sums_of_amx(x: NDArray[np.float32], w: NDArray[np.float32]) -> NDArray[np.float32]:
    y = np.zeros((x.shape[1], w.shape[2]), np.float32)
    for begin in range(0, len(x), STEP):
        first, second = np.zeros_like(y), np.zeros_like(y)
        for i in range(begin, begin + STEP, 2):
            first += x[i] * w[i]
            second += x[i + 1] * w[i + 1]
        y += first + second
    return y
