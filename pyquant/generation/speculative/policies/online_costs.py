"""Seconds of draft tokens and of passes of the target, measured round by round while tokens are generated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

FORGET = 0.9  # weight of a measurement beside the next one: machines become faster and slower
MOST = 1.5  # times as long as before that a measurement counts for: the rest is an interruption
FORGET_ROUND = 0.95  # weight of a round beside the next one, for what a second brings
SAVED = 3.0  # tokens at most that drafting may lose again of what it saved
CREDIT = 0.5  # tokens that drafting may lose at first, to learn whether it pays
NOTHING = 0.02  # of a pass: seconds of a draft before one that still counts as without a draft
PROMPT = 8  # unread tokens from which on a draft is said to read a prompt
# What stands in for measurements, in seconds of a token without a draft: a draft token; each token of a
# prompt; and two passes by the tokens behind the first, each of which weighs WEIGHT measured ones.
DRAFT, READ, PASSES, WEIGHT = 0.4, 0.1, ((1, 1.15), (7, 2.0)), 0.5


class Spent(NamedTuple):
    """Seconds of a round: its first draft token, further ones, and all else: the target's pass."""

    first: float
    further: float
    verify: float

    @property
    def total(self) -> float:
        """Seconds of the round."""
        return self.first + self.further + self.verify


@dataclass
class Mean:
    """A mean of n measurements, of which earlier ones weigh less."""

    seconds: float = 0.0
    n: int = 0
    _weight: float = 0.0

    def add(self, seconds: float, age: int = 1) -> None:
        """Enter a measurement. age: rounds since the one before."""
        if self.n:
            seconds = min(seconds, MOST * self.seconds)
        self.n, self._weight = self.n + 1, FORGET**age * self._weight + 1
        self.seconds += (seconds - self.seconds) / self._weight


@dataclass
class OnlineCosts:
    """What the rounds of a run took so far.

    Attributes
    ----------
    alone : Mean
        A pass over one token, where nothing is drafted.
    first, further, read : Mean
        A round's first draft token, each further one, and each token of a prompt that a draft reads.
    since_alone, since_draft : int
        Rounds since the last one without a draft, and since the last one with a draft.
    saved : float
        Tokens that the target could have generated alone in the time that drafting saved lately; below 0
        where it lost time. CREDIT at first.
    """

    alone: Mean = field(default_factory=Mean)
    first: Mean = field(default_factory=Mean)
    further: Mean = field(default_factory=Mean)
    read: Mean = field(default_factory=Mean)
    since_alone: int = 0
    since_draft: int = 0
    saved: float = CREDIT
    _brought: tuple[float, float] = (0.0, 0.0)  # tokens, and their seconds by these costs
    _passes: tuple[float, ...] = (0.0,) * 5  # sums: passes, tokens, their squares, seconds, seconds by tokens

    def add(self, n_calls: int, n_drafted: int, n_tokens: int, unread: int, spent: Spent) -> None:
        """Enter a round: tokens that the draft computed, that were verified, and that the round brought.

        unread: tokens that the draft had to read before its first one.
        """
        self.since_alone, self.since_draft = self.since_alone + 1, self.since_draft + 1
        if n_calls:
            if unread > PROMPT:
                self.read.add(max(spent.first - self.first.seconds, 0.0) / unread)
            else:
                self.first.add(spent.first, self.since_draft)
        if n_calls > 1:
            self.further.add(spent.further / (n_calls - 1), self.since_draft)
        free = spent.first <= NOTHING * spent.verify
        if n_drafted:
            self._add_pass(n_drafted, spent.verify)
        elif free:
            self.since_alone = 0
            self.alone.add(spent.verify)
        if n_drafted or not free:
            self.since_draft = 0
        two, slope = self.line()
        seconds = two + slope * (n_drafted - 1) if n_drafted else self.alone.seconds
        if n_calls:
            seconds += self.first.seconds + self.further.seconds * (n_calls - 1)
            if self.alone.n:
                self.saved = min(self.saved + n_tokens - seconds / self.alone.seconds, SAVED)
        self.saved *= FORGET_ROUND
        tokens, before = self._brought
        self._brought = FORGET_ROUND * tokens + n_tokens, FORGET_ROUND * before + seconds

    def _add_pass(self, n_drafted: int, seconds: float) -> None:
        if self.alone.n:
            two, slope = self.line()
            seconds = min(seconds, MOST * (two + slope * (n_drafted - 1)))
        entered = (1.0, n_drafted, n_drafted**2, seconds, seconds * n_drafted)
        self._passes = tuple(FORGET * old + new for old, new in zip(self._passes, entered))

    @property
    def rate(self) -> float:
        """Tokens that a second brought lately."""
        tokens, seconds = self._brought
        return tokens / seconds if seconds else 0.0

    @property
    def of_first(self) -> float:
        """Seconds of a round's first draft token."""
        return self.first.seconds if self.first.n else DRAFT * self.alone.seconds

    @property
    def of_further(self) -> float:
        """Seconds of a further draft token."""
        return self.further.seconds if self.further.n else self.of_first

    def of_reading(self, unread: int) -> float:
        """Return the seconds that a draft takes to read what it has not read, if that is a prompt."""
        if unread <= PROMPT:
            return 0.0
        return unread * (self.read.seconds if self.read.n else READ * self.alone.seconds)

    def line(self) -> tuple[float, float]:
        """Return the seconds of a pass over two tokens and of each further one, by least squares."""
        n, x, xx, y, xy = self._passes
        for behind, times in PASSES:
            seconds = times * self.alone.seconds
            n, x, xx = n + WEIGHT, x + WEIGHT * behind, xx + WEIGHT * behind**2
            y, xy = y + WEIGHT * seconds, xy + WEIGHT * seconds * behind
        slope = max((n * xy - x * y) / (n * xx - x * x), 0.0)
        return (y + slope * (n - x)) / n, slope
