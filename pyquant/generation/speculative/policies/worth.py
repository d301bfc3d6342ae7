"""What drafting is worth by its costs: bounds that policy `expected_value` compares with, computed once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pyquant.generation.speculative.policies.costs import Costs
from pyquant.generation.speculative.policies.policy import LONGEST

NOTHING = 1e-30  # tokens that further ones bring, where these are never accepted
STEPS = 100  # of the share of tokens that are accepted, from 0 to 1


@dataclass(frozen=True)
class Worth:
    """Bounds, where so large a share of tokens was accepted lately.

    Attributes
    ----------
    more, place : list of float
        Chances that all drafted tokens are accepted, by how many these are, from 0: above which another one
        pays, and below which the last one's place in the pass does not pay.
    saved : float
        Seconds of each token of a completion that drafts of the best fixed length save, beside the target
        alone; below 0 where none saves any.
    """

    more: list[float]
    place: list[float]
    saved: float


@lru_cache(maxsize=64)
def worths(costs: Costs, most: int) -> list[Worth]:
    """Return what drafting is worth, by the share of tokens that are accepted, in steps of a hundredth.

    Seconds are worth the rate of the best fixed length, which is no lower than the target's own. Each further
    token that is looked at is as likely to be accepted as those were lately. most: tokens of a draft.
    """
    most = min(most, LONGEST)
    n_ahead = min(most, len(costs.verify))
    rounds = np.array([costs.of_round(k) for k in range(most + n_ahead + 1)])  # by drafted tokens
    # Seconds of 1, 2, ... tokens behind 0, 1, ... that were drafted, and of the last place in a pass.
    drafted, ahead = np.arange(most)[:, None], np.arange(1, n_ahead + 1)
    takes = rounds[drafted + ahead] - rounds[drafted]
    takes[drafted + ahead > most] = np.inf
    places = np.array([0.0, *(costs.of_pass(k + 1) - costs.of_pass(k) for k in range(1, most + 1))])
    measured, rounds = len(costs.verify), rounds[: n_ahead + 1]
    return [_worth(step / STEPS, rounds, measured, takes, places) for step in range(STEPS + 1)]


def _worth(
    chance: float, rounds: np.ndarray, n_measured: int, takes: np.ndarray, places: np.ndarray
) -> Worth:
    bring = np.cumsum(chance ** np.arange(len(rounds)))  # tokens of a round
    rate = float((bring[:n_measured] / rounds[:n_measured]).max())
    more = (rate * takes / np.maximum(bring[1:] - 1, NOTHING)).min(axis=1)
    saved = rounds[0] - float((rounds / bring)[1:].min())
    return Worth([*more.tolist(), np.inf], (rate * places).tolist(), saved)
