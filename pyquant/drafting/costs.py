"""Seconds that a token of a draft takes, and passes of the target over several tokens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """What drafting and verifying take.

    Attributes
    ----------
    draft : float
        Seconds of a draft token.
    verify : tuple of float
        Seconds of a pass of the target over 1, 2, ... tokens.
    """

    draft: float
    verify: tuple[float, ...]

    def of_pass(self, n_tokens: int) -> float:
        """Return the seconds of a pass over n tokens; what was not measured goes on in a straight line."""
        verify = self.verify
        if n_tokens <= len(verify):
            return verify[n_tokens - 1]
        slope = (verify[-1] - verify[0]) / (len(verify) - 1) if len(verify) > 1 else verify[0]
        return verify[-1] + slope * (n_tokens - len(verify))

    def of_round(self, n_drafted: int) -> float:
        """Return the seconds of drafting n tokens and of verifying them: a pass over one more."""
        return n_drafted * self.draft + self.of_pass(n_drafted + 1)
