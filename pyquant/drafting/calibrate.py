"""Fit the chance that a drafted token is accepted to what a record has of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MOST_STEPS = 50
NEARLY = 1e-9  # as policy `expected_value` has it


def calibrate(top_p: NDArray[np.float64], accepted: NDArray[np.float64]) -> dict[str, float]:
    """Fit the chance a of acceptance: logit(a) = bias + slope * logit(p), by maximum likelihood.

    Newton's method on the logistic regression (Platt, 1999), with one accepted and one refused token added
    at each end, so that a record where all are accepted has finite chances.

    Parameters
    ----------
    top_p, accepted : (n,) float64
        Probability of the draft's most likely token, and the chance or the fact that it was accepted.

    Returns
    -------
    dict
        bias, slope, and the mean acceptance.
    """
    p = np.clip(np.concatenate([top_p, [0.01, 0.01, 0.99, 0.99]]), NEARLY, 1 - NEARLY)
    target = np.concatenate([accepted, [0, 1, 0, 1]])
    inputs = np.stack([np.ones_like(p), np.log(p / (1 - p))], axis=1)
    weights = np.array([0.0, 1.0])
    for _ in range(MOST_STEPS):
        chance = 1 / (1 + np.exp(-inputs @ weights))
        curvature = (inputs * (chance * (1 - chance) + 1e-9)[:, None]).T @ inputs
        step = np.linalg.solve(curvature, inputs.T @ (target - chance))
        weights += step * min(1.0, 2 / float(np.abs(step).max() + 1e-300))
    bias, slope = (round(float(w), 4) for w in weights)
    return {"bias": bias, "slope": max(slope, 0.0), "mean": round(float(accepted.mean()), 4)}
