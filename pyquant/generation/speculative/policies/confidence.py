"""Policy `confidence` of the library Transformers."""

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


def confidence(round: Round, *, p: float, keep: int, most: int) -> Decision:
    """Stop after a drafted token that has less than this probability."""
    unsure = bool(round.token_p) and round.token_p[-1] < p
    return unless(unsure, round.entropies, keep, most)


FAMILY = Family(
    confidence,
    {
        "p": Parameter(
            0.4,
            Limit(0, 1, whole=False),
            "probability of the drafted token",
            (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95),
        ),
        "keep": KEEP,
        "most": MOST,
    },
)
