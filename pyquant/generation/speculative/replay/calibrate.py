"""Fit the chance that a drafted token is accepted to what a record has of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pyquant.generation.speculative.policies.certainty import Certainty
from pyquant.generation.speculative.policies.expected_value import EXPECTED_VALUE, NEARLY

MOST_STEPS = 50
PRIOR = 1 / 5**2  # of weights: a normal distribution whose standard deviation is 5

EMPTY = np.empty((0, 3))


def calibrate(drafted: Sequence[tuple[Certainty, bool]]) -> dict[str, float]:
    """Fit the chance a of acceptance by maximum likelihood: logit(a) = bias + slope * logit(p) + c * sqrt(H).

    Newton's method on the logistic regression (Platt, 1999), with one accepted and one refused token added
    at each end of p and of H, and a normal prior of the weights: so those of a record of few tokens, or of
    one where all are accepted, are moderate. Of two tokens with the same p, the one of more entropy may well
    be the surer: what is not p is spread among more rivals.

    Takes certainty and acceptance of each drafted token; returns bias, slope and entropy, which is c.
    """
    entropy, top_p, accepted = np.array([(sure.entropy, sure.top_p, its) for sure, its in drafted] or EMPTY).T
    p = np.clip(np.concatenate([top_p, [0.01, 0.01, 0.99, 0.99]]), NEARLY, 1 - NEARLY)
    root = np.sqrt(np.concatenate([entropy, [5.0, 5.0, 0.05, 0.05]]))
    target = np.concatenate([accepted, [0, 1, 0, 1]])
    inputs = np.stack([np.ones_like(p), np.log(p / (1 - p)), root], axis=1)
    found = dict(zip(("bias", "slope", "entropy"), _fit(inputs, target)))
    limits = {name: EXPECTED_VALUE.parameters[name].limit for name in found}
    return {
        name: round(float(np.clip(its, limits[name].low, limits[name].high)), 4)
        for name, its in found.items()
    }


def _fit(inputs: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weights; Newton's steps are halved until the likelihood grows."""
    weights = np.zeros(inputs.shape[1])

    def loss(weights: NDArray[np.float64]) -> float:
        z = inputs @ weights
        return float((np.logaddexp(0, z) - target * z).sum() + PRIOR / 2 * weights @ weights)

    for _ in range(MOST_STEPS):
        chance = np.exp(-np.logaddexp(0, -inputs @ weights))
        curvature = (inputs * (chance * (1 - chance))[:, None]).T @ inputs + PRIOR * np.eye(len(weights))
        step = np.linalg.solve(curvature, inputs.T @ (target - chance) - PRIOR * weights)
        share = 1.0
        while loss(weights + share * step) > loss(weights) and share > NEARLY:
            share /= 2
        weights = weights + share * step
    return weights
