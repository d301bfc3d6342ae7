"""Policy `plus_minus`: the heuristic of the library Transformers."""

from __future__ import annotations

from pyquant.generation.speculative.policies.policy import MOST, Decision, Family, Parameter, Round
from pyquant.limits import Limit


def plus_minus(round: Round, *, start: int, most: int) -> Decision:
    """Draft two tokens more than before if all were accepted, else one less; at least 1."""
    k = min(round.previous.fold(_after, start), most)
    return Decision.MORE if len(round.entropies) < k else Decision.STOP


def _after(k: int, played: tuple[int, int]) -> int:
    drafted, accepted = played
    return k + 2 if accepted == drafted else max(1, k - 1)


FAMILY = Family(
    plus_minus,
    {"start": Parameter(5, Limit(1, 1 << 10), "tokens of the first draft", (1, 2, 5)), "most": MOST},
)
