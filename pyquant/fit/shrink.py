"""Draw uncertain measurements towards what their neighbors say."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

REACH = 2.0  # layers: how far neighbors count


def shrink(
    values: NDArray[np.float64], variances: NDArray[np.float64], places: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Combine each measurement with the mean of its neighbors, by how certain either is.

    How much values differ between neighbors beyond their errors is estimated from all of them, by moments
    (empirical Bayes; Morris, 1983).

    values: (n,) float64: measurements of one quantity, here logarithms of sensitivities of one kind of
    tensor.
    variances: (n,) float64: the squares of their standard errors.
    places: (n,) float64: where they were made, here layers. Weights fall with the distance, as a normal
    distribution.
    Returns (n,) float64.
    """
    if len(values) < 3:
        return values
    near = np.exp(-0.5 * np.square((places[:, None] - places) / REACH))
    np.fill_diagonal(near, 0)
    weights = near.sum(axis=1, keepdims=True)
    if not (known := weights[:, 0] > 0).all():  # the others have no neighbors that float64 tells of
        drawn = values.copy()
        drawn[known] = shrink(values[known], variances[known], places[known])
        return drawn
    near /= weights
    around = near @ values
    of_around = np.square(near) @ variances
    # E (value - around)^2 = differing * (1 + sum of squares) + variance + of_around
    apart = np.square(values - around) - variances - of_around
    differing = max(0.0, float(np.sum(apart) / np.sum(1 + np.square(near).sum(axis=1))))
    trust = differing + of_around
    return np.where(
        trust + variances > 0,
        (values * trust + around * variances) / np.maximum(trust + variances, 1e-300),
        values,
    )
