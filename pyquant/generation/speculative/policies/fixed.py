"""Policy `fixed`."""

from __future__ import annotations

from pyquant.generation.speculative.policies.policy import Decision, Family, Parameter, Round
from pyquant.limits import DRAFT_TOKENS


def fixed(round: Round, *, k: int) -> Decision:
    """Draft k tokens; none with k = 0."""
    return Decision.MORE if len(round.entropies) < k else Decision.STOP


FAMILY = Family(fixed, {"k": Parameter(4, DRAFT_TOKENS, "tokens of a draft", tuple(range(17)))})
