"""Attention of a few queries to the same keys and values: twin of csrc/generation/few/few_queries.h."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.generation.twins.draw import exp_nonpositive

CELLS = 16  # whose weights are computed together


def attend_few(
    queries: NDArray[np.float32],
    keys: NDArray[np.float16],
    values: NDArray[np.float16],
    masks: NDArray[np.float16] | None,
    scale: float,
    *,
    lanes: int,
) -> NDArray[np.float32]:
    """Compute the mean of values, weighted by exp(scale * (query . key) + mask), in one pass over the cells.

    Weights are relative to the largest score so far; what was summed is corrected where a larger one comes
    (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018). A fused multiplication and
    addition rounds once.

    Parameters
    ----------
    queries : (n, size) float32
        They are rounded to float16.
    keys, values : (n_cells, size) float16
        n_cells is a multiple of 16.
    masks : (n, n_cells) float16
        Added to scores; minus infinity hides a cell.
    scale : float
    lanes : int
        Sums of the product of a query and a key.

    Returns
    -------
    (n, size) float32
        Zeros where a query may look at no cell.
    """
    n, size = queries.shape
    x = queries.astype(np.float16).astype(np.float64)
    sums = np.zeros((n, size), np.float32)
    largest, total = np.full(n, -np.inf, np.float32), np.zeros(n, np.float32)
    for first in range(0, len(keys), CELLS):
        part = slice(first, first + CELLS)
        scores = _products(x, keys[part].astype(np.float64), lanes) * np.float32(scale)
        if masks is not None:
            scores = scores + masks[:, part].astype(np.float32)
        peak = np.maximum(largest, scores.max(axis=1))
        seen = np.isfinite(peak)
        base = np.where(seen, peak, np.float32(0))
        correction = np.where(seen, exp_nonpositive(largest - base), np.float32(1))
        weights = exp_nonpositive(scores - base[:, None])
        total = total * correction + _halved(weights)
        largest = peak
        sums = sums * correction[:, None]
        for weight, value in zip(weights.T, values[part], strict=True):
            sums = (sums + weight[:, None].astype(np.float64) * value.astype(np.float64)).astype(np.float32)
    share = np.divide(np.float32(1), total, out=np.zeros_like(total), where=total != 0)
    return sums * share[:, None]


def _products(x: NDArray[np.float64], keys: NDArray[np.float64], lanes: int) -> NDArray[np.float32]:
    sums = np.zeros((len(x), len(keys), lanes), np.float32)
    for term in np.moveaxis((x[:, None] * keys).reshape(len(x), len(keys), -1, lanes), 2, 0):
        sums = (sums + term).astype(np.float32)
    return _halved(sums)


def _halved(terms: NDArray[np.float32]) -> NDArray[np.float32]:
    """Add the upper half to the lower half until one is left."""
    while terms.shape[-1] > 1:
        half = terms.shape[-1] // 2
        terms = terms[..., :half] + terms[..., half:]
    return terms[..., 0]
