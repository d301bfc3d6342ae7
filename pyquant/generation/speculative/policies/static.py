"""Policy `static` of entropy drafting (Kluser, bachelor's thesis, HSLU 2024)."""

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


def static(round: Round, *, threshold: float, keep: int, most: int) -> Decision:
    """Stop after the token whose entropy is at least a threshold."""
    entropies = round.entropies
    return unless(bool(entropies) and entropies[-1] >= threshold, entropies, keep, most)


FAMILY = Family(
    static,
    {
        "threshold": Parameter(
            2.25,
            Limit(0, 100, whole=False),
            "entropy, in nats",
            (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0, 3.5, 4.0, 4.75, 5.5, 6.5),
        ),
        "keep": KEEP,
        "most": MOST,
    },
)
