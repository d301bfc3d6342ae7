"""Unfold symmetric matrices, of which the collector keeps the lower triangle, in panels of columns.

Panel p has the columns from p * PANEL on and the rows from its first column down, row after row. In the
square at its top the upper triangle holds zeros.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pyquant._core import PANEL


def triangle_size(n: int) -> int:
    """Count the values that are kept of an n x n matrix."""
    return sum((n - columns.start) * (columns.stop - columns.start) for columns in _panels(n))


def full_matrix(triangle: NDArray[np.float32], n: int) -> NDArray[np.float32]:
    """Unfold a matrix.

    Parameters
    ----------
    triangle
        (triangle_size(n),) the values that are kept of it.
    n
        Its rows and columns.

    Returns
    -------
    (n, n), symmetric, of the triangle's dtype.
    """
    matrix = np.zeros((n, n), triangle.dtype)
    at = 0
    for columns in _panels(n):
        shape = n - columns.start, columns.stop - columns.start
        matrix[columns.start :, columns] = triangle[at : at + shape[0] * shape[1]].reshape(shape)
        at += shape[0] * shape[1]
    for columns in _panels(n):  # transposing panel by panel stays in cache
        square = matrix[columns, columns]
        square += np.tril(square, -1).T
        matrix[columns, columns.stop :] = matrix[columns.stop :, columns].T
    return matrix


def _panels(n: int) -> Iterator[slice]:
    for first in range(0, n, PANEL):
        yield slice(first, min(first + PANEL, n))
