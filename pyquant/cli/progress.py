"""Show how far a command is: a bar on a terminal, a line every 10 seconds elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyquant.cli.output import remark, size
from pyquant.cli.streams import hear_loggers
from pyquant.fit.method.expected_parts import ExpectedParts

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int, str], None]]:
    """Shows progress in bytes, with rate and time left; called with (done, all, name of the part)."""
    hear_loggers()
    if not sys.stderr.isatty():
        lines = Lines(what, lambda rate: f"{size(rate)}/s")
        yield lines.update
        return
    from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

    with _bar(what, DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()) as update:
        yield update


@contextmanager
def count_bar(what: str, unit: str | None = "chunks") -> Iterator[Callable[..., None]]:
    """Shows progress in `unit`, with the time left; called with (done, all[, a note]).

    unit: None shows no rate and no counts, as of steps that say nothing to people.
    """
    hear_loggers()
    if not sys.stderr.isatty():
        lines = Lines(what, lambda rate: f"{rate:.3g} {unit}/s" if unit else "")
        yield lines.update
        return
    from rich.progress import MofNCompleteColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

    counts = (MofNCompleteColumn(), TextColumn(unit)) if unit else (TaskProgressColumn(),)
    with _bar(what, *counts, TimeRemainingColumn()) as update:
        yield update


@contextmanager
def _bar(what: str, *columns: ProgressColumn) -> Iterator[Callable[..., None]]:
    """Draws a bar, with columns behind it; called with (done, all[, a note])."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    before = TextColumn("{task.description}", markup=False), BarColumn()
    note = TextColumn("{task.fields[note]}", markup=False)
    with Progress(*before, *columns, note, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, note="")

        def update(done: int, total: int, note: str = "") -> None:
            bar.update(task, completed=done, total=total, note=note)

        yield update


class Lines:
    """Progress as lines, at least 10 seconds from one to the next."""

    def __init__(self, what: str, rate: Callable[[float], str]) -> None:
        """what: is done. rate: formats units per second; an empty text is left out."""
        self._what, self._rate = what, rate
        self._last = monotonic()
        self._from = (self._last, 0)  # when so much was done: a run that goes on begins with more than 0
        self._is_told = False

    def update(self, done: int, total: int, note: str = "") -> None:
        """Prints a line if it is time: name, share, rate, time left and a note."""
        now = monotonic()
        begin, before = self._from
        if not self._is_told:
            self._from, self._is_told = (now, done), True
        if now - self._last < SECONDS_BETWEEN_LINES or not before < done <= total:
            return
        self._last = now
        rate = (done - before) / (now - begin)
        left = duration((total - done) / rate)
        parts = [f"{done / total:.0%}", self._rate(rate), f"{left} left", note]
        remark(f"{self._what}: {', '.join(part for part in parts if part)}")


def duration(seconds: float) -> str:
    """100 -> '2 min'."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


class Phases:
    """Shows how far each part of the work is, and what is left of all parts where these are expected.

    units: what steps of parts are; those of others say nothing to people.
    """

    def __init__(self, stack: ExitStack, units: Mapping[str, str]) -> None:
        self._stack, self._units = stack, units
        self._at = ""
        self._from = (0.0, 0)  # when it was told of this, and what was done then
        self._expected = ExpectedParts()
        self._update: Callable[..., None] = lambda *_: None

    def expect(self, parts: Iterable[tuple[str, float]]) -> None:
        """Take the names of parts in the order of the work, and the seconds of each."""
        self._expected = ExpectedParts(parts)

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show a part, or a step of one, "PART: STEP"."""
        now = monotonic()
        if what != self._at:
            self._stack.close()
            self._at, self._from = what, (now, done)
            self._update = self._stack.enter_context(count_bar(what, self._units.get(what)))
            self._expected.reach(what)
        self._update(done, total, self._left(now, done, total))

    def _left(self, now: float, done: int, total: int) -> str:
        begin, before = self._from
        if not before < done:
            return ""
        left = self._expected.left_of((now - begin) / (done - before) * (total - done))
        return "" if left is None else f"{duration(left)} of all"


@contextmanager
def phases(units: Mapping[str, str] = MappingProxyType({})) -> Iterator[Phases]:
    """Show how far each part of the work is; called with its name, steps done and all steps."""
    with ExitStack() as stack:
        yield Phases(stack, units)
