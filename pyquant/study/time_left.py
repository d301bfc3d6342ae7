"""Estimate how long a study still takes."""

from __future__ import annotations

from collections import deque

RECENT = 600.0  # seconds


class TimeLeft:
    """The time left, by the rate of the last ten minutes.

    What a cache had, and costs that were estimated wrongly, mislead no longer than that.
    """

    def __init__(self, now: float) -> None:
        """Begin. now: seconds of a clock, as in all calls."""
        self._first = (now, 0.0)
        self._recent = deque([self._first])

    def at(self, share: float, now: float) -> float | None:
        """Return the seconds left, when a share of the work is done; None until something can be said."""
        self._recent.append((now, share))
        while now - self._recent[0][0] > RECENT:
            self._recent.popleft()
        begin, before = self._recent[0]
        if share <= before:  # one long step: all of the run tells more
            begin, before = self._first
        return (now - begin) / (share - before) * (1 - share) if share > 0.02 else None
