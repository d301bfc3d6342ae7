"""Unfold symmetric matrices, of which the collector keeps the lower triangle, in panels of columns.

Panel p has the columns from p * PANEL on and the rows from its first column down, row after row. In the
square at its top the upper triangle holds zeros.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pyquant._core import PANEL


def triangle_size(n: int) -> int:
    """Count the values that are kept of an n x n matrix."""
    return sum((n - columns.start) * (columns.stop - columns.start) for columns in _panels(n))


def side_of(n_values: int) -> int | None:
    """Give the n of an n x n matrix of which so many values are kept; None where there is none."""
    n = math.isqrt(2 * n_values)  # they are some more than half of n^2
    while triangle_size(n) > n_values:
        n -= 1
    return n if triangle_size(n) == n_values else None


def full_matrix(triangle: NDArray[np.float32], n: int) -> NDArray[np.float32]:
    """Unfold a matrix.

    triangle: (triangle_size(n),) the values that are kept of it.
    Returns (n, n), symmetric, of the triangle's dtype.
    """
    matrix = np.zeros((n, n), triangle.dtype)
    at = 0
    for columns in _panels(n):
        shape = n - columns.start, columns.stop - columns.start
        matrix[columns.start :, columns] = triangle[at : at + shape[0] * shape[1]].reshape(shape)
        at += shape[0] * shape[1]
    mirror(matrix)
    return matrix


def places(n: int, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> NDArray[np.intp]:
    """Say where an n x n matrix's elements are among the values that are kept of it."""
    low, high = np.minimum(rows, columns), np.maximum(rows, columns)
    first = low // PANEL * PANEL  # column of the panel
    # Each panel before has PANEL columns, and rows from its first column down.
    before = first * n - PANEL * PANEL * (first // PANEL) * (first // PANEL - 1) // 2
    return np.asarray(before + (high - first) * np.minimum(PANEL, n - first) + low - first)


def mirror(matrix: NDArray[np.float32]) -> None:
    """Make a matrix, (n, n), symmetric: what is above the diagonal becomes what is below."""
    for columns in _panels(len(matrix)):  # transposing panel by panel stays in cache
        square = matrix[columns, columns]
        square[:] = np.tril(square) + np.tril(square, -1).T
        matrix[columns, columns.stop :] = matrix[columns.stop :, columns].T


def triangle_of(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """Fold a symmetric matrix, (n, n): (triangle_size(n),) the values that are kept of it."""
    n, parts = len(matrix), []
    for columns in _panels(n):
        panel = matrix[columns.start :, columns].copy()
        width = panel.shape[1]
        panel[:width] = np.tril(panel[:width])
        parts.append(panel.ravel())
    return np.concatenate(parts)


def scale_triangle(triangle: NDArray[np.float32], exponents: NDArray[np.int8]) -> NDArray[np.float32]:
    """Multiply rows and columns of a matrix by powers of two.

    triangle: (triangle_size(n),) the values that are kept of it.
    exponents: (n,) row i and column i are multiplied by 2 to exponents[i].
    Returns (triangle_size(n),).
    """
    scaled = np.empty_like(triangle)
    n, at = len(exponents), 0
    for columns in _panels(n):
        together = exponents[columns.start :, None] + exponents[columns]
        part = slice(at, at + together.size)
        scaled[part] = np.ldexp(triangle[part].reshape(together.shape), together).ravel()
        at = part.stop
    return scaled


def _panels(n: int) -> Iterator[slice]:
    for first in range(0, n, PANEL):
        yield slice(first, min(first + PANEL, n))
