"""The error of weights: twin of csrc/kernels/error.h."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def error(x: NDArray[np.float32], y: NDArray[np.float32]) -> dict[str, float]:
    """Measure what became of weights.

    Differences and their squares are float32, as in the kernel; sums are float64.

    Parameters
    ----------
    x, y : float32
        Weights before and after, of one shape.

    Returns
    -------
    dict
        `squared_error`, `squared_weight` (of x), `squared_value` (of y): sums of squares.
        `largest_error` and `largest_error_at`: the largest magnitude of a difference and its flat index, -1
        where there are no weights. `zeros`: how many of y are 0.
    """
    x, y = x.ravel(), y.ravel()
    difference = x - y
    largest = int(np.abs(difference).argmax()) if x.size else -1
    return {
        "squared_error": np.square(difference).sum(dtype=np.float64),
        "squared_weight": np.square(x).sum(dtype=np.float64),
        "squared_value": np.square(y).sum(dtype=np.float64),
        "largest_error": np.abs(difference)[largest] if x.size else 0.0,
        "largest_error_at": largest,
        "zeros": np.count_nonzero(y == 0),
    }


def weighted_error(
    x: NDArray[np.float32], y: NDArray[np.float32], importance: NDArray[np.float32]
) -> dict[str, float]:
    """Sum squares where columns have importances.

    Parameters
    ----------
    x, y : (n, n_per_row) float32
        Rows of weights before and after.
    importance : (n_per_row,) float32
        Weight of each column's squared errors.

    Returns
    -------
    dict
        `weighted_squared_error` and `weighted_squared_weight`, float64.
    """
    weights = importance.astype(np.float64)
    return {
        "weighted_squared_error": (np.square(x - y) * weights).sum(),
        "weighted_squared_weight": (np.square(x) * weights).sum(),
    }
