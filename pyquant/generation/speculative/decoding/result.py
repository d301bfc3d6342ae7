"""What came of a completion with a draft."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyquant.generation.sampling.result import Sample
from pyquant.generation.speculative.rounds import Played


@dataclass
class DraftedCompletion:
    """A completion that a target generated with a draft, or is generating.

    The first token follows the prompt without a round. Seconds are of all, the prompts of both models too; of
    the target's prompt; of drafting, with the draft's prompt; of verifying; and of asking the policy, with
    making what it decides by: entropies and probabilities.
    """

    sample: Sample
    rounds: list[Played] = field(default_factory=list)
    seconds: float = 0.0
    prompt_seconds: float = 0.0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    policy_seconds: float = 0.0

    @property
    def n_tokens(self) -> int:
        """Tokens that were generated, the one that ends the completion among them."""
        return len(self.sample.log_p)

    @property
    def n_drafted(self) -> int:
        """Tokens that were drafted and verified."""
        return sum(played.drafted for played in self.rounds)

    @property
    def n_accepted(self) -> int:
        """Tokens that were drafted, and are in the completion."""
        return sum(played.accepted for played in self.rounds)

    @property
    def acceptance(self) -> float | None:
        """Share of drafted tokens that were accepted; None without any."""
        return self.n_accepted / self.n_drafted if self.n_drafted else None

    @property
    def tokens_per_round(self) -> float | None:
        """Tokens that a pass of the target brought; None without any."""
        return (self.n_tokens - 1) / len(self.rounds) if self.rounds else None

    def to_json(self) -> dict[str, Any]:
        """Return it as `pyquant generate --draft FILE --json` prints each of its lines."""
        return {
            **self.sample.to_json(),
            "rounds": len(self.rounds),
            "drafted": self.n_drafted,
            "accepted": self.n_accepted,
            "acceptance": self.acceptance,
            "tokens_per_round": self.tokens_per_round,
            "seconds": self.seconds,
            "prompt_seconds": self.prompt_seconds,
            "draft_seconds": self.draft_seconds,
            "verify_seconds": self.verify_seconds,
            "policy_seconds": self.policy_seconds,
            "tokens_per_second": self.n_tokens / self.seconds if self.seconds else None,
        }
