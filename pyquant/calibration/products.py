"""Multiply what enters and leaves matrices, tokens by the thousand.

Where the CPU multiplies BF16, numbers are rounded to it, and sums are of float32: that is twice as
fast, and over a text's tokens little is left of the rounding (csrc/calibrate/bf16_strips.h). Elsewhere all is
float32.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.machine.cpu import n_threads

PORTION = 4096  # tokens that are summed up together, where all are at hand


def portions(n_tokens: int) -> Iterator[slice]:
    """Cut tokens into portions that are summed up together."""
    for begin in range(0, n_tokens, PORTION):
        yield slice(begin, begin + PORTION)


def add_products(
    y: NDArray[np.float32],
    z: NDArray[np.float32],
    hessian: NDArray[np.float32],
    moved: NDArray[np.float32],
    *,
    threads: int | None = None,
) -> None:
    """Add sums over tokens of products.

    y, z: (n_tokens, n_y), (n_tokens, n_z) float32.
    hessian: (n_y, n_y) float32: gets the sum of y y^T, on and below the diagonal.
    moved: (n_z, n_y) float32: gets those of z y^T.
    """
    if _core.HAS_BF16_PRODUCTS:
        y, z = np.ascontiguousarray(y), np.ascontiguousarray(z)
        _core.add_token_products(y, z, hessian, moved, n_threads=n_threads(threads))
    else:
        hessian += y.T @ y
        moved += z.T @ y


def multiply(
    matrix: NDArray[np.float32], tokens: NDArray[np.float32], *, threads: int | None = None
) -> NDArray[np.float32]:
    """Multiply a matrix, (n_out, n_in), with each token, (n_tokens, n_in): (n_tokens, n_out) float32."""
    if _core.HAS_BF16_PRODUCTS:
        return _core.multiply_rows(np.ascontiguousarray(tokens), matrix, n_threads=n_threads(threads))
    return tokens @ matrix.T
