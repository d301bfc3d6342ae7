"""Policies that stop at a token of which the draft is not sure.

Three are the strategies of entropy drafting (Kluser, bachelor's thesis, HSLU 2024). With keep=1 the unsure
token is verified too, with keep=0 it is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyquant.generation.speculative.policies.certainty import Certainty
from pyquant.generation.speculative.policies.policy import MOST, Decision, Family, Parameter, Round
from pyquant.limits import Limit

ANY, SHARE = Limit(0, 1e6, whole=False), Limit(0, 1, whole=False)


def _static(drafted: list[Certainty], threshold: float) -> bool:
    """Say whether the entropy is at least a threshold."""
    return drafted[-1].entropy >= threshold


def _moving_average(drafted: list[Certainty], factor: float, n: int) -> bool:
    """Say whether the squared entropy is at least a factor times the mean of the last n before it."""
    before = drafted[-n - 1 : -1]
    mean_of_squares = sum(token.entropy**2 for token in before) / max(len(before), 1)
    return bool(before) and drafted[-1].entropy ** 2 >= factor * mean_of_squares


def _cumulative(drafted: list[Certainty], threshold: float, n: int) -> bool:
    """Say whether squared entropies, of the token and the n before it, sum up to a threshold."""
    return sum(token.entropy**2 for token in drafted[-n - 1 :]) >= threshold


def _confidence(drafted: list[Certainty], p: float) -> bool:
    """Say whether the drafted token has less than this probability, as in Transformers."""
    return drafted[-1].token_p < p


def _p_min(drafted: list[Certainty], p: float) -> bool:
    """Say whether the most likely token has less than this probability, as in llama.cpp."""
    return drafted[-1].top_p < p


def _unless(unsure: Callable[..., bool], keep: Parameter | None = None, **own: Parameter) -> Family:
    """Make the policy that drafts on unless it is unsure of the last token, or has as many as are allowed."""

    def decide(round: Round, *, keep: int = 0, most: int, **given: Any) -> Decision:
        drafted = round.drafted
        if drafted and unsure(drafted, **given):
            return Decision.STOP if keep else Decision.DROP
        return Decision.MORE if len(drafted) < most else Decision.STOP

    shared = {"keep": keep, "most": MOST} if keep else {"most": MOST}
    return Family(decide, own | {name: its for name, its in shared.items() if name not in own})


KEEP = Parameter(1, Limit(0, 1), (1, 0))
THRESHOLDS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0, 3.5, 4.0, 4.75, 5.5, 6.5)
SUMS = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0)
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0)
BEFORE = (1, 2, 3, 5, 7, 10)
THRESHOLDS_OF = {
    "static": _unless(_static, KEEP, threshold=Parameter(2.25, ANY, THRESHOLDS)),
    "moving_average": _unless(
        _moving_average, KEEP, factor=Parameter(0.5, ANY, FACTORS), n=Parameter(7, Limit(1, 1 << 10), BEFORE)
    ),
    "cumulative": _unless(
        _cumulative, KEEP, threshold=Parameter(10.0, ANY, SUMS), n=Parameter(7, Limit(0, 1 << 10), BEFORE)
    ),
    "confidence": _unless(
        _confidence, KEEP, p=Parameter(0.4, SHARE, (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95))
    ),
    "p_min": _unless(
        _p_min,
        p=Parameter(0.0, SHARE, (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)),
        most=Parameter(3, MOST.limit, (1, 2, 3, 4, 6, 8, 16)),
    ),
}
