"""The oracle: the drafts that take least if all acceptances are known. No policy can take less."""

from __future__ import annotations

import numpy as np

from pyquant.generation.speculative.policies.costs import Costs
from pyquant.generation.speculative.policies.policy import LONGEST
from pyquant.generation.speculative.replay.record import Along
from pyquant.generation.speculative.rounds import Played


def best_rounds(completion: Along, costs: Costs) -> list[Played]:
    """Find the best rounds of a completion, from its end to its beginning.

    A refused token is drafted too where a larger pass takes so much less time.
    """
    n = len(completion.said)
    of_round = np.array([costs.of_round(k) for k in range(LONGEST + 1)])
    least = np.zeros(n + 2)
    choice, runs = [0] * (n + 2), [0] * (n + 2)
    for at in range(n - 1, 0, -1):
        runs[at] = run = runs[at + 1] + 1 if completion.said[at].accepted else 0
        room = min(LONGEST, n - at - (not completion.ended))
        some = min(run, room)
        taken = of_round[: room + 1].copy()
        taken[: some + 1] += least[at + 1 : at + some + 2]
        taken[some + 1 :] += least[at + some + 1]
        choice[at] = int(taken.argmin())
        least[at] = taken[choice[at]]
    rounds, at = [], 1
    while at < n:
        n_accepted = min(choice[at], runs[at])
        rounds.append(Played(choice[at], choice[at], n_accepted, float(of_round[choice[at]])))
        at += n_accepted + 1
    return rounds
