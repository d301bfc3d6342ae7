"""Policy `cumulative` of entropy drafting (Kluser, bachelor's thesis, HSLU 2024)."""

from __future__ import annotations

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


def cumulative(round: Round, *, threshold: float, n: int, keep: int, most: int) -> Decision:
    """Stop after the token at which squared entropies, of it and the n before it, sum up to a threshold."""
    entropies = round.entropies
    unsure = bool(entropies) and sum(x * x for x in entropies[-n - 1 :]) >= threshold
    return unless(unsure, entropies, keep, most)


FAMILY = Family(
    cumulative,
    {
        "threshold": Parameter(
            10.0,
            Limit(0, 1e6, whole=False),
            "sum of squares, in nats squared",
            (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0),
        ),
        "n": Parameter(7, Limit(0, 1 << 10), "tokens before it that count", (1, 2, 3, 5, 7, 10)),
        "keep": KEEP,
        "most": MOST,
    },
)
