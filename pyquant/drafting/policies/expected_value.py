"""Policy `expected_value`: what a token is expected to bring, beside what it takes."""

from __future__ import annotations

from math import exp, log, sqrt

from pyquant.drafting.costs import Costs
from pyquant.drafting.policies.worth import Prices
from pyquant.drafting.policy import MOST, Decision, Family, Grown, Parameter, Round, Took
from pyquant.limits import Limit

FORGET = 0.95  # weight of a round beside the one after it
PRIOR = 8.0  # drafted tokens that what is expected before the first one weighs
NEARLY = 1e-9  # probabilities end so far from 0 and 1: their logits are finite
STEPS = 100  # of the acceptance lately, from 0 to 1
NO_ROUNDS: Grown[Took] = Grown()

EXPECTED = 10  # rounds that what costs say weighs, beside what the clock says
REMEMBER = 0.99  # weight of a round's seconds beside those of the one after it
MOST_SLOWER = 2.0  # times as long as by its costs: a round that takes longer was interrupted
SLOWER_STEPS = 20  # of how many times as long rounds with a draft take, from one time to the next

# Seconds of rounds with a draft and by their costs, and of rounds without one.
Sums = tuple[float, float, float, float]


def expected_value(
    round: Round,
    *,
    known: Known,
    bias: float,
    slope: float,
    entropy: float,
    mean: float,
    most: int,
    clock: int,
) -> Decision:
    """Stop when what more tokens are expected to bring no longer pays for drafting and verifying them.

    The acceptance lately is the share of tokens that were accepted, those behind a refused one left out; at
    first it is `mean`. The chance a of a drafted token is calibrated by the probability p of the most likely
    one and the entropy H, and moved as far as the acceptance lately is from `mean`:
    logit(a) = bias + slope * logit(p) + entropy * sqrt(H) + logit(lately) - logit(mean). A token counts if
    all before it are accepted: n tokens bring 1 + a1 + a1 a2 + ... The next one's chance is not known before
    it is drafted, so the acceptance lately stands in for it.

    Drafting goes on if, for any number of further tokens, what they bring is more than their seconds are
    worth. When it stops, the last token is dropped if its place in the pass costs more than it brings. What
    seconds are worth, and from which chance on tokens bring more than that, is computed once for acceptances
    in steps of a hundredth; see `Prices`. Where rounds with a draft take longer than costs say, beside rounds
    without one, costs are corrected by the clock; see `Known`.
    """
    tried, accepted = round.previous.fold(_counted, (0.0, 0.0))
    step = int((PRIOR * mean + accepted) / (PRIOR + tried) * STEPS + 0.5)
    moved, more, place = known.at(step, round.took if clock else NO_ROUNDS)
    drafted, all_accepted = len(round.top_p), 1.0
    for p, its_entropy in zip(round.top_p, round.entropies):
        logit = log(p / (1 - p)) if NEARLY < p < 1 - NEARLY else _logit(p)
        # What parameters can be and logits are leaves exp far below the largest number.
        all_accepted /= 1 + exp(-(bias + moved + slope * logit + entropy * sqrt(its_entropy)))
    if drafted < most and all_accepted > more[drafted]:
        return Decision.MORE
    return Decision.DROP if all_accepted < place[drafted] else Decision.STOP


class Known:
    """What the policy makes of costs, and of the clock.

    A machine may be slower than when its costs were measured, and more so with several tokens than with one.
    So seconds of rounds are counted, later ones with more weight, beside what costs say of the same rounds.

    Parameters
    ----------
    costs
    parameters
        `mean` and `most`.
    """

    def __init__(self, costs: Costs, parameters: dict[str, float]) -> None:
        self._costs, self._prices = costs, Prices(costs, int(parameters["most"]))
        self._at_first = _logit(parameters["mean"])
        self._prior = EXPECTED * costs.alone
        self._known: dict[tuple[int, int], tuple[float, list[float], list[float]]] = {}

    def at(self, step: int, took: Grown[Took]) -> tuple[float, list[float], list[float]]:
        """Return how far the acceptance lately moves logits of chances, and the bounds of a `Worth`.

        Parameters
        ----------
        step
            Of the acceptance lately.
        took
            Rounds so far.
        """
        drafted, of_drafted, alone, of_alone = took.fold(self._count, (0.0, 0.0, 0.0, 0.0))
        prior = self._prior
        slower = (prior + drafted) * (prior + of_alone) / ((prior + of_drafted) * (prior + alone))
        key = step, int(slower * SLOWER_STEPS + 0.5)
        known = self._known.get(key)
        if known is None:
            worth = self._prices.worth(step / STEPS, key[1] / SLOWER_STEPS)
            known = _logit(step / STEPS) - self._at_first, worth.more, worth.place
            self._known[key] = known
        return known

    def _count(self, sums: Sums, took: Took) -> Sums:
        by_costs = self._costs.of_round(took.n_calls, took.n_drafted, took.n_unread)
        seconds = min(took.seconds, MOST_SLOWER * by_costs)
        drafted, of_drafted, alone, of_alone = (REMEMBER * before for before in sums)
        if took.n_calls:
            return drafted + seconds, of_drafted + by_costs, alone, of_alone
        return drafted, of_drafted, alone + seconds, of_alone + by_costs


def _counted(sums: tuple[float, float], played: tuple[int, int]) -> tuple[float, float]:
    """Count tokens that were tried and accepted, later rounds with more weight."""
    drafted, accepted = played
    return FORGET * sums[0] + min(accepted + 1, drafted), FORGET * sums[1] + accepted


def _logit(p: float) -> float:
    p = min(max(p, NEARLY), 1 - NEARLY)
    return log(p / (1 - p))


FAMILY = Family(
    expected_value,
    {
        "bias": Parameter(0.0, Limit(-20, 20, whole=False), "of a token's calibrated chance"),
        "slope": Parameter(1.0, Limit(0, 20, whole=False), "of a token's calibrated chance"),
        "entropy": Parameter(0.0, Limit(-20, 20, whole=False), "of a token's calibrated chance, by its root"),
        "mean": Parameter(
            0.8,
            Limit(0, 1, whole=False),
            "share of tokens that are accepted, at first",
            (0.5, 0.6, 0.7, 0.8, 0.9, 0.95),
        ),
        "most": MOST,
        "clock": Parameter(1, Limit(0, 1), "1: costs are corrected by the clock; 0: they stand"),
    },
    from_costs=Known,
)
