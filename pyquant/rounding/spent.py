"""Seconds by what they are spent on."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Spent:
    """Adds up what parts of a work take; those that are done in several threads overlap."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def on(self, part: str) -> Iterator[None]:
        """Count what is done inside."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[part] += time.perf_counter() - begin

    def describe(self) -> str:
        """Say how long all has taken, and its parts."""
        parts = ", ".join(f"{part} {seconds:.1f} s" for part, seconds in self._seconds.items())
        return f"{time.perf_counter() - self._begin:.1f} s: {parts}"
