"""Tokens and seconds of a run: what drafting has saved or lost by the clock."""

from __future__ import annotations

from dataclasses import dataclass

PRIOR = 8.0  # tokens without a draft that what costs say of one weighs
FORGET = 0.98  # weight of a token without a draft beside the next one: machines become faster and slower


@dataclass
class Clock:
    """Tokens of all rounds; tokens and seconds of rounds with drafted tokens, and of rounds without.

    The older the ones without are, the less they weigh.
    """

    tokens: int = 0
    drafted_tokens: int = 0
    drafted_seconds: float = 0.0
    alone_tokens: float = 0.0
    alone_seconds: float = 0.0

    def add(self, n_calls: int, n_tokens: int, seconds: float) -> None:
        """Enter a round: tokens that the draft computed, tokens that were generated, and seconds."""
        self.tokens += n_tokens
        if n_calls:
            self.drafted_tokens += n_tokens
            self.drafted_seconds += seconds
        else:
            self.alone_tokens = FORGET * self.alone_tokens + n_tokens
            self.alone_seconds = FORGET * self.alone_seconds + seconds

    def lost(self, alone: float) -> float:
        """Return how many tokens the target could have generated alone in the time that drafting has lost.

        Below 0 where drafting has saved time. alone: seconds of a token without a draft, by costs; they count
        less, the more such tokens there are.
        """
        seconds = (PRIOR * alone + self.alone_seconds) / (PRIOR + self.alone_tokens)
        return self.drafted_seconds / seconds - self.drafted_tokens
