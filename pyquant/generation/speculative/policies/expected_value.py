"""Policy `expected_value`: what a token is expected to bring, beside what it takes."""

from __future__ import annotations

from math import exp, inf, log, sqrt

from pyquant.generation.speculative.policies.costs import Costs
from pyquant.generation.speculative.policies.policy import MOST, Decision, Family, Parameter, Round
from pyquant.generation.speculative.policies.worth import STEPS, worths
from pyquant.limits import Limit

FORGET = 0.95  # weight of a round beside the one after it
PRIOR = 8.0  # drafted tokens that what is expected before the first one weighs
NEARLY = 1e-9  # probabilities end so far from 0 and 1: their logits are finite
STAKE = 600  # tokens without a draft that the share which drafts may lose is of, before any is generated

# What is known of an acceptance lately: how far it moves logits of chances, `more` and `place` of a `Worth`,
# how many tokens a draft may have to read before it begins, for each token that the completion may still
# have, and the seconds of a token without a draft.
Known = tuple[float, list[float], list[float], float, float]


def expected_value(
    round: Round,
    *,
    known: list[Known],
    bias: float,
    slope: float,
    entropy: float,
    mean: float,
    loss: float,
    most: int,
) -> Decision:
    """Stop when what more tokens are expected to bring no longer pays for drafting and verifying them.

    The acceptance lately is the share of tokens that were accepted, those behind a refused one left out; at
    first it is `mean`. The chance a of a drafted token is calibrated by the probability p of the most likely
    one and the entropy H, and moved as far as the acceptance lately is from `mean`:
    logit(a) = bias + slope * logit(p) + entropy * sqrt(H) + logit(lately) - logit(mean). A token counts if
    all before it are accepted: n tokens bring 1 + a1 + a1 a2 + ... The next one's chance is not known before
    it is drafted, so the acceptance lately stands in for it.

    What seconds are worth, and from which chance on tokens bring more than that, is `known` beforehand for
    all acceptances, in steps of a hundredth; see `worths`. Drafting goes on if, for any number of further
    tokens, what they bring is more than their seconds are worth. When it stops, the last token is dropped if
    its place in the pass costs more than it brings. No draft begins if it takes longer to read the prompt,
    and what was generated without it, than drafts would save in the rest of the completion; and none begins
    while drafts have lost more by the clock, over all completions of the run, than `loss` times as many
    tokens as were generated, and STAKE: the machine is not as it was when costs were measured.
    """
    tried, accepted = round.previous.fold(_counted, (0.0, 0.0))
    moved, more, place, to_read, alone = known[int((PRIOR * mean + accepted) / (PRIOR + tried) * STEPS + 0.5)]
    drafted, all_accepted = len(round.drafted), 1.0
    if not drafted:
        may_lose = loss * (STAKE + round.learned.clock.tokens)
        if round.unread - 1 > to_read * round.room or round.learned.clock.lost(alone) > may_lose:
            return Decision.STOP
    for its_entropy, p, *_ in round.drafted:
        logit = log(p / (1 - p)) if NEARLY < p < 1 - NEARLY else _logit(p)
        # What parameters can be and logits are leaves exp far below the largest number.
        all_accepted /= 1 + exp(-(bias + moved + slope * logit + entropy * sqrt(its_entropy)))
    if drafted < most and all_accepted > more[drafted]:
        return Decision.MORE
    return Decision.DROP if all_accepted < place[drafted] else Decision.STOP


def _known(costs: Costs, parameters: dict[str, float]) -> list[Known]:
    """Return what is known beforehand, by the acceptance lately in steps."""
    at_first = _logit(parameters["mean"])
    known = []
    for step, worth in enumerate(worths(costs, int(parameters["most"]))):
        to_read = worth.saved / costs.prompt if costs.prompt else inf
        known.append((_logit(step / STEPS) - at_first, worth.more, worth.place, to_read, costs.alone))
    return known


def _counted(sums: tuple[float, float], played: tuple[int, int]) -> tuple[float, float]:
    """Count tokens that were tried and accepted, later rounds with more weight."""
    drafted, accepted = played
    return FORGET * sums[0] + min(accepted + 1, drafted), FORGET * sums[1] + accepted


def _logit(p: float) -> float:
    p = min(max(p, NEARLY), 1 - NEARLY)
    return log(p / (1 - p))


WEIGHT, SHARE = Limit(-20, 20, whole=False), Limit(0, 1, whole=False)
EXPECTED_VALUE = Family(
    expected_value,
    {
        # Of a token's calibrated chance, which a search fits to the record:
        "bias": Parameter(0.0, WEIGHT),
        "slope": Parameter(1.0, Limit(0, 20, whole=False)),
        "entropy": Parameter(0.0, WEIGHT),
        # The share of tokens that are accepted, at first:
        "mean": Parameter(0.8, SHARE, (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)),
        # The share of the time without a draft that drafts may lose by the clock:
        "loss": Parameter(0.01, SHARE),
        "most": MOST,
    },
    from_costs=_known,
)
