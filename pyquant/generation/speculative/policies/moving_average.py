"""Policy `moving_average` of entropy drafting (Kluser, bachelor's thesis, HSLU 2024)."""

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


def moving_average(round: Round, *, factor: float, n: int, keep: int, most: int) -> Decision:
    """Stop after the token whose squared entropy is at least a factor times the mean of those before it.

    The mean is of the last n tokens of this draft before it, or of as many as there are; the first token
    has none before it, and never stops a draft.
    """
    entropies = round.entropies
    before = entropies[-n - 1 : -1]
    unsure = bool(before) and entropies[-1] ** 2 * len(before) >= factor * sum(x * x for x in before)
    return unless(unsure, entropies, keep, most)


FAMILY = Family(
    moving_average,
    {
        "factor": Parameter(
            0.5,
            Limit(0, 1e6, whole=False),
            "times the mean of squares",
            (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0),
        ),
        "n": Parameter(7, Limit(1, 1 << 10), "tokens that the mean is of", (1, 2, 3, 5, 7, 10)),
        "keep": KEEP,
        "most": MOST,
    },
)
