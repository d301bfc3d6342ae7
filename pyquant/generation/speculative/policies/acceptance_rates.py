"""Acceptance rates of drafted tokens, learned while tokens are generated, by what is known of each token."""

from __future__ import annotations

from collections.abc import Sequence

from pyquant.generation.speculative.policies.certainty import Certainty

FORGET = 0.95  # weight of a round with a draft beside the next one
WEIGHT = 4.0  # tokens that what is expected beforehand weighs
EXPECTED = 0.8  # acceptance rate before the first token
SHORT = 3  # tokens of a draft at most, before any is accepted
BINS = 10  # of the draft model's probability
LONGEST = 6  # bits of the most matched tokens that are told from more


class AcceptanceRates:
    """Shares of drafted tokens that are accepted; those behind a refused one are left out.

    Of all tokens lately; and by kind: of a draft model by the probability of the token, of n-grams by how
    much matched and whether anything else ever followed. A few tokens of what is expected beforehand count
    with each kind: of a draft model a rate above the probability, which does not know of the target's; of
    n-grams one that grows with the match.
    """

    def __init__(self) -> None:
        self._tried = self._accepted = self._run = 0.0
        self._kinds: dict[tuple[int, int], tuple[float, float]] = {}

    def add(self, drafted: Sequence[Certainty], n_verified: int, n_accepted: int) -> None:
        """Enter a round: tokens that were drafted, of which the first ones were verified, and accepted.

        Where all were dropped, the first one counts as accepted as often as those like it.
        """
        if not drafted:
            return
        n_tried = min(n_accepted + 1, n_verified)
        self._tried = FORGET * self._tried + max(n_tried, 1)
        self._accepted = FORGET * self._accepted + (n_accepted if n_tried else self.of(drafted[0]))
        self._run = max(n_accepted, FORGET * self._run)
        for n, sure in enumerate(drafted[:n_tried]):
            kind = _kind(sure)
            tried, accepted = self._kinds.get(kind, (0.0, 0.0))
            self._kinds[kind] = FORGET * tried + 1, FORGET * accepted + (n < n_accepted)

    @property
    def lately(self) -> float:
        """The rate of all tokens."""
        return (WEIGHT * EXPECTED + self._accepted) / (WEIGHT + self._tried)

    @property
    def longest(self) -> float:
        """Tokens of a draft, at most: twice as many as were accepted lately, so that it grows as they are."""
        return SHORT + 2 * self._run

    def of(self, sure: Certainty) -> float:
        """The rate of tokens like this one."""
        tried, accepted = self._kinds.get(_kind(sure), (0.0, 0.0))
        p, matched = sure.token_p, sure.matched
        expected = p * (1 - 1 / (1 + matched)) if matched else 1 - (1 - p) ** 2
        return (WEIGHT * expected + accepted) / (WEIGHT + tried)

    def behind(self, sure: Certainty) -> float:
        """The rate of a token that is drafted behind this one, where that is accepted."""
        return self.of(sure._replace(matched=sure.matched + 1)) if sure.matched else self.lately


def _kind(sure: Certainty) -> tuple[int, int]:
    if sure.matched:
        return -min(sure.matched.bit_length(), LONGEST), sure.token_p < 1
    return int(BINS * sure.token_p), 0
