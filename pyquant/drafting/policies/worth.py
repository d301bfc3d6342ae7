"""What drafting is worth by its costs: bounds that policy `expected_value` compares with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyquant.drafting.costs import Costs
from pyquant.drafting.policy import LONGEST

NOTHING = 1e-30  # tokens that further ones bring, where these are never accepted


@dataclass(frozen=True)
class Worth:
    """Bounds, where so large a share of tokens was accepted lately.

    Attributes
    ----------
    more : list of float
        By tokens that were drafted, from 0: the chance that all are accepted above which another one pays.
    place : list of float
        By the same: the chance below which the last one's place in the pass does not pay; 0 without tokens.
    """

    more: list[float]
    place: list[float]


class Prices:
    """Seconds of rounds, as bounds are computed from them.

    Parameters
    ----------
    costs
    most
        Tokens of a draft.
    """

    def __init__(self, costs: Costs, most: int) -> None:
        most = min(most, LONGEST)
        n_ahead = min(most, len(costs.verify))
        self._n_measured = len(costs.verify)
        # By drafted tokens: a round, its last place in the pass, and 1, 2, ... tokens more.
        rounds = np.array([costs.of_round(k) for k in range(most + n_ahead + 1)])
        places = [0.0, *(costs.of_pass(k + 1) - costs.of_pass(k) for k in range(1, most + 1))]
        drafted, ahead = np.arange(most)[:, None], np.arange(1, n_ahead + 1)
        self._begun = rounds[drafted + ahead]
        self._begun[drafted + ahead > most] = np.inf
        self._before = rounds[:most, None]
        self._rounds, self._places = rounds[: n_ahead + 1], np.array(places)

    def worth(self, chance: float, slower: float = 1.0) -> Worth:
        """Return what drafting is worth.

        Seconds are worth the rate of the best fixed length, which is no lower than the target's own.

        Parameters
        ----------
        chance
            Of each further token to be accepted.
        slower
            How many times as long rounds with a draft take, beside those without, as costs say.
        """
        of_rounds = np.full(len(self._rounds), slower)
        of_rounds[0] = 1
        n = self._n_measured
        bring = np.cumsum(chance ** np.arange(len(self._rounds)))  # tokens of a round
        rate = float((bring[:n] / (of_rounds * self._rounds)[:n]).max())
        before = self._before * slower
        before[0] = self._before[0]
        takes = self._begun * slower - before
        more = (rate * takes / np.maximum(bring[1:] - 1, NOTHING)).min(axis=1)
        return Worth([*more.tolist(), np.inf], (rate * slower * self._places).tolist())
