"""Policies that draft a number of tokens, however sure the draft is."""

from __future__ import annotations

from pyquant.generation.speculative.policies.policy import MOST, Decision, Family, Parameter, Round
from pyquant.limits import DRAFT_TOKENS, Limit


def _fixed(round: Round, *, k: int) -> Decision:
    return Decision.MORE if len(round.drafted) < k else Decision.STOP


def _plus_minus(round: Round, *, start: int, most: int) -> Decision:
    return _fixed(round, k=min(round.previous.fold(_after, start), most))


def _after(k: int, played: tuple[int, int]) -> int:
    drafted, accepted = played
    return k + 2 if accepted == drafted else max(1, k - 1)


LENGTHS = {
    # k tokens; none with k = 0.
    "fixed": Family(_fixed, {"k": Parameter(4, DRAFT_TOKENS, tuple(range(17)))}),
    # Two tokens more than before if all were accepted, else one less: the heuristic of Transformers.
    "plus_minus": Family(_plus_minus, {"start": Parameter(5, Limit(1, 1 << 10), (1, 2, 5)), "most": MOST}),
}
