"""Policy `adaedl` (Agrawal, Jeon, Lee, "AdaEDL: Early draft stopping", arXiv 2410.18351)."""

from __future__ import annotations

import math

from pyquant.generation.speculative.policies.policy import (
    KEEP,
    MOST,
    Decision,
    Family,
    Parameter,
    Round,
    unless,
)
from pyquant.limits import Limit

# Acceptance that the threshold is moved towards, how slowly the mean acceptance and the threshold change, and
# by how much: the rule of Zhang et al., "Draft & Verify", arXiv 2309.08168.
WANTED, SLOW_ACCEPTANCE, SLOW_THRESHOLD, STEP = 0.9, 0.5, 0.9, 0.01


def adaedl(round: Round, *, gamma: float, threshold: float, adapt: int, keep: int, most: int) -> Decision:
    """Stop after the token at which 1 - sqrt(gamma * entropy), a bound on acceptance, is below a threshold.

    With `adapt`, after each round that drafted, the mean share of accepted tokens becomes half of itself and
    half of the round's share; the threshold goes up by (1 - 0.9) * 0.01 where that mean is at most 0.9, and
    down by as much where it is more. The mean begins at 0.9.
    """
    entropies = round.entropies
    if adapt:
        threshold = round.previous.fold(_after, (WANTED, threshold))[1]
    unsure = bool(entropies) and 1 - math.sqrt(gamma * entropies[-1]) < threshold
    return unless(unsure, entropies, keep, most)


def _after(state: tuple[float, float], played: tuple[int, int]) -> tuple[float, float]:
    acceptance, threshold = state
    drafted, accepted = played
    if drafted == 0:
        return state
    acceptance = SLOW_ACCEPTANCE * acceptance + (1 - SLOW_ACCEPTANCE) * accepted / drafted
    moved = threshold + STEP if acceptance <= WANTED else threshold - STEP
    return acceptance, SLOW_THRESHOLD * threshold + (1 - SLOW_THRESHOLD) * moved


FAMILY = Family(
    adaedl,
    {
        "gamma": Parameter(0.2, Limit(0, 100, whole=False), "factor of the entropy", (0.1, 0.2, 0.4)),
        "threshold": Parameter(
            0.4,
            Limit(-10, 1, whole=False),
            "bound on acceptance, at first",
            (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
        ),
        "adapt": Parameter(1, Limit(0, 1), "1: the threshold follows acceptance", (1, 0)),
        "keep": KEEP,
        "most": MOST,
    },
)
