"""Place of work among the parts that were expected of it."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic


class ExpectedParts:
    """Parts of work in their order, and which of them is at work: none at first.

    parts: name and seconds of each.
    """

    def __init__(self, parts: Iterable[tuple[str, float]] = ()) -> None:
        self._parts = list(parts)
        self._at, self._place, self._since = "", -1, 0.0

    def reach(self, what: str) -> None:
        """Take what is at work: a part, or a step of one, "PART: STEP"."""
        if what == self._at:
            return
        self._at = what
        names = {what, what.partition(": ")[0]}
        behind = range(self._place + 1, len(self._parts))
        if (place := next((i for i in behind if self._parts[i][0] in names), None)) is not None:
            self._place, self._since = place, monotonic()

    def left_of(self, left: float) -> float | None:
        """Give the seconds that are left of all, where `left` are of what is at work; None where unknown."""
        behind = sum(seconds for _, seconds in self._parts[self._place + 1 :])
        if self._place < 0 or behind == 0:
            return None
        name, seconds = self._parts[self._place]
        if name != self._at:  # further steps may follow
            left = max(left, seconds - (monotonic() - self._since))
        return left + behind

    def share(self, done: float) -> float:
        """Give the share of all that is done, where the share `done` is of what is at work."""
        every = sum(seconds for _, seconds in self._parts)
        if self._place < 0 or every == 0:
            return 0.0
        name, seconds = self._parts[self._place]
        here = seconds * done if name == self._at else min(seconds, monotonic() - self._since)
        return (sum(seconds for _, seconds in self._parts[: self._place]) + here) / every
