"""A text of a record as one that is written again, round by round."""

from __future__ import annotations

from pyquant.generation.speculative.policies.costs import Costs
from pyquant.generation.speculative.policies.policy import Certainty
from pyquant.generation.speculative.replay.record import Along


class ReplayedText:
    """A `rounds.Text` behind its first token. What a draft takes to read the prompt is left out.

    Parameters
    ----------
    along
    most
        Tokens that the text was allowed to have.
    drops
        Whether a policy may drop a token for what it is.
    costs
        What rounds take.
    """

    unread = 1

    def __init__(self, along: Along, most: int, drops: bool, costs: Costs) -> None:
        self.drops = drops
        self._said, self._costs, self._most = along.said, costs, most
        self._end = len(along.said) - (not along.ended)  # a pass brings one more, but behind the end
        self._at, self._n_calls, self._n_drafted = 1, 0, 0

    @property
    def done(self) -> bool:
        """Whether it is complete."""
        return self._at >= len(self._said)

    @property
    def room(self) -> int:
        """Tokens that it may still have."""
        return self._most - self._at

    @property
    def goes_on(self) -> bool:
        """Whether another token can be drafted."""
        return self._at + self._n_calls < self._end

    def propose(self) -> Certainty | None:
        """Return what was recorded of the next token.

        Behind a refused token n-grams go on with what followed theirs, though they have nothing to say on the
        text.
        """
        at = self._at + self._n_calls
        if (sure := self._said[at].sure) is not None:
            self._last = sure
        elif all(said.accepted for said in self._said[self._at : at]):
            return None
        self._n_calls += 1
        self._n_drafted += 1
        return self._last

    def drop(self) -> None:
        """Take the last drafted token back."""
        self._n_drafted -= 1

    def verify(self) -> tuple[int, float]:
        """Accept as was recorded; the seconds are those of the costs."""
        n_accepted = 0
        while n_accepted < self._n_drafted and self._said[self._at + n_accepted].accepted:
            n_accepted += 1
        seconds = self._costs.of_round(self._n_calls, self._n_drafted)
        self._at += n_accepted + 1
        self._n_calls = self._n_drafted = 0
        return n_accepted, seconds
