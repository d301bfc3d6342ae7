"""Policy `expected_value`: what a token is expected to bring, beside what it takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate
from operator import mul

from pyquant.drafting.costs import Costs
from pyquant.drafting.policy import MOST, Decision, Family, Parameter, Round
from pyquant.limits import Limit

FORGET = 0.95  # weight of a round beside the one after it
PRIOR = 4.0  # rounds that what is expected before the first one weighs
NEARLY = 1e-9  # probabilities end so far from 0 and 1: their logits are finite

# Sums over rounds, later ones with more weight: tokens tried, tokens accepted, tokens brought, seconds.
_Sums = tuple[float, float, float, float]


def expected_value(
    round: Round, *, costs: Costs, bias: float, slope: float, mean: float, most: int
) -> Decision:
    """Stop when what more tokens are expected to bring no longer pays for drafting and verifying them.

    The chance a of a drafted token is calibrated: logit(a) = bias + slope * logit(p), p being the most likely
    token's probability. A token counts if all before it are accepted, so n tokens bring 1 + a1 + a1 a2 + ...
    The next one's chance is not known before it is drafted: the share of tokens accepted lately stands in for
    it, at first `mean`. Drafting goes on if for any number m of further tokens what they bring is more than
    their seconds would bring at the rate of the rounds lately, which is no lower than the target's own. When
    it stops, the last token is dropped if its place in the pass costs more than it brings.
    """
    tried, accepted, tokens, seconds = round.previous.fold(_counted(costs), (0.0, 0.0, 0.0, 0.0))
    chance = (PRIOR * mean + accepted) / (PRIOR + tried)
    single = costs.of_pass(1)
    rate = max(1 / single, (PRIOR + tokens) / (PRIOR * single + seconds))
    reached = list(accumulate((_chance(p, bias, slope) for p in round.top_p), mul))
    drafted, all_accepted = len(reached), reached[-1] if reached else 1.0
    if drafted < most and _pays(all_accepted, chance, rate, costs, drafted, most):
        return Decision.MORE
    if drafted and all_accepted < rate * (costs.of_pass(drafted + 1) - costs.of_pass(drafted)):
        return Decision.DROP
    return Decision.STOP


def _pays(all_accepted: float, chance: float, rate: float, costs: Costs, drafted: int, most: int) -> bool:
    so_far = costs.of_pass(drafted + 1)
    bring, reached = 0.0, all_accepted
    for more in range(1, min(most - drafted, len(costs.verify)) + 1):
        reached *= chance
        bring += reached
        if bring > rate * (more * costs.draft + costs.of_pass(drafted + more + 1) - so_far):
            return True
    return False


def _chance(p: float, bias: float, slope: float) -> float:
    p = min(max(p, NEARLY), 1 - NEARLY)
    return 1 / (1 + math.exp(-bias - slope * math.log(p / (1 - p))))


@lru_cache(maxsize=16)
def _counted(costs: Costs) -> Callable[[_Sums, tuple[int, int]], _Sums]:
    def after(sums: _Sums, played: tuple[int, int]) -> _Sums:
        tried, accepted, tokens, seconds = (FORGET * value for value in sums)
        n_drafted, n_accepted = played
        return (
            tried + min(n_accepted + 1, n_drafted),
            accepted + n_accepted,
            tokens + n_accepted + 1,
            seconds + costs.of_round(n_drafted),
        )

    return after


FAMILY = Family(
    expected_value,
    {
        "bias": Parameter(0.0, Limit(-20, 20, whole=False), "of a token's calibrated chance"),
        "slope": Parameter(1.0, Limit(0, 20, whole=False), "of a token's calibrated chance"),
        "mean": Parameter(
            0.8, Limit(0, 1, whole=False), "share of tokens that are accepted, at first", (0.6, 0.7, 0.8, 0.9)
        ),
        "most": MOST,
    },
    needs_costs=True,
)
