"""Products of numbers in BF16 as Intel's matrix registers sum them up, in numpy.

Of a step, 16 pairs, they sum up the products of first numbers and those of second ones apart (TDPBF16PS in
Intel's architecture manual). Products are exact in float32; every sum is rounded.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

STEP = 32  # numbers
TOGETHER = 1024  # numbers whose products are summed up before they are added to others


def multiply(x: NDArray[np.float32], w: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n_x, n_in) and (n_w, n_in), which BF16 can hold; n_in: a multiple of 32. Returns (n_x, n_w)."""
    blocks = [
        _sums(x[:, i : i + TOGETHER].T[:, :, None], w[:, i : i + TOGETHER].T[:, None])
        for i in range(0, x.shape[1], TOGETHER)
    ]
    y = blocks[0]
    for block in blocks[1:]:
        y = y + block
    return y


def _sums(x: NDArray[np.float32], w: NDArray[np.float32]) -> NDArray[np.float32]:
    y = np.zeros((x.shape[1], w.shape[2]), np.float32)
    for begin in range(0, len(x), STEP):
        first, second = np.zeros_like(y), np.zeros_like(y)
        for i in range(begin, begin + STEP, 2):
            first += x[i] * w[i]
            second += x[i + 1] * w[i + 1]
        y += first + second
    return y
