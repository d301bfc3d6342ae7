"""Policy `p_min` of llama.cpp."""

from __future__ import annotations

from pyquant.generation.speculative.policies.policy import Decision, Family, Parameter, Round, unless
from pyquant.limits import Limit


def p_min(round: Round, *, p: float, most: int) -> Decision:
    """Stop before a token where the most likely one has less than this probability."""
    unsure = bool(round.top_p) and round.top_p[-1] < p
    return unless(unsure, round.entropies, 0, most)


FAMILY = Family(
    p_min,
    {
        "p": Parameter(
            0.0,
            Limit(0, 1, whole=False),
            "probability of the most likely token",
            (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95),
        ),
        "most": Parameter(3, Limit(1, 1 << 10), "tokens of a draft, at most", (1, 2, 3, 4, 6, 8, 16)),
    },
)
