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
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_type import TensorType as Type

# What a matrix is, (n_out, n_in): float32, or where BF16 is multiplied also float16, or BF16 in uint16.
Matrix = NDArray[np.float32] | NDArray[np.float16] | NDArray[np.uint16]
STORED = {Type.F32: np.float32, Type.F16: np.float16, Type.BF16: np.uint16}

PORTION = 4096  # rows whose products are computed together, where all are at hand


def portions(n_rows: int) -> Iterator[slice]:
    """Cut rows, such as inputs of tokens, into portions whose products are computed together."""
    for begin in range(0, n_rows, PORTION):
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


def add_squares(y: NDArray[np.float32], hessian: NDArray[np.float32], *, threads: int | None = None) -> None:
    """Add sums over tokens of y y^T to `hessian`, as `add_products` does."""
    add_products(y, y[:, :0], hessian, np.empty((0, y.shape[1]), np.float32), threads=threads)


class Stored:
    """A matrix, (n_out, n_in), of which products take rows as they are stored where they can, else decoded.

    Rows in a GGUF are mapped once: a page that was read is there the next time. exact: all are decoded.
    """

    def __init__(self, tensor: Tensor, *, exact: bool = False) -> None:
        self._rows, self._decoder, self._n_in = tensor.stored_rows(), tensor.decoder(), tensor.n_per_row
        self._type = STORED.get(tensor.type) if _core.HAS_BF16_PRODUCTS and not exact else None
        self.n_rows = tensor.n_rows

    def blocks(self, n_bytes: int) -> Iterator[slice]:
        """Cut all rows into those that take about n_bytes decoded; where none are, they are one."""
        step = self.n_rows if self._type else max(1, n_bytes // (4 * self._n_in))
        return (slice(begin, begin + step) for begin in range(0, self.n_rows, step))

    def __getitem__(self, rows: slice) -> Matrix:
        """Give some rows."""
        return self._rows[rows].view(self._type) if self._type else self.decoded(rows)

    def decoded(self, rows: slice | NDArray[np.int32]) -> NDArray[np.float32]:
        """Decode some rows, or those with these numbers."""
        return self._decoder.decode(self._rows[rows], n_per_row=self._n_in)


def multiply(
    matrix: Matrix, tokens: NDArray[np.float32], *, exact: bool = False, threads: int | None = None
) -> NDArray[np.float32]:
    """Multiply a matrix, (n_out, n_in), with each token, (n_tokens, n_in): (n_tokens, n_out) float32.

    exact: nothing is rounded to BF16.
    """
    if _core.HAS_BF16_PRODUCTS and not exact:
        return _core.multiply_rows(np.ascontiguousarray(tokens), matrix, n_threads=n_threads(threads))
    return tokens @ matrix.T


def multiply_back(
    matrix: Matrix, outputs: NDArray[np.float32], *, threads: int | None = None
) -> NDArray[np.float32]:
    """Multiply a matrix from the other side, with (n_tokens, n_out): (n_tokens, n_in) float32."""
    if _core.HAS_BF16_PRODUCTS:
        return _core.multiply_columns(np.ascontiguousarray(outputs), matrix, n_threads=n_threads(threads))
    return outputs @ matrix
