"""Show how far a command is: a bar on a terminal, a line every 10 seconds elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from time import monotonic
from types import MappingProxyType

from pyquant.cli.output import remark, size
from pyquant.cli.streams import hear_loggers

SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int, str], None]]:
    """Shows progress in bytes, with rate and time left; called with (done, all, name of the part)."""
    hear_loggers()
    if not sys.stderr.isatty():
        lines = Lines(what, lambda rate: f"{size(rate)}/s")
        yield lines.update
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[part]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, part="")

        def update(done: int, total: int, part: str) -> None:
            bar.update(task, completed=done, total=total, part=part)

        yield update


@contextmanager
def count_bar(what: str, unit: str | None = "chunks") -> Iterator[Callable[..., None]]:
    """Shows progress in `unit`, with the time left; called with (done, all[, perplexity so far]).

    unit: None shows no rate and no counts, as of steps that say nothing to people.
    """
    hear_loggers()
    if not sys.stderr.isatty():
        lines = Lines(what, lambda rate: f"{rate:.3g} {unit}/s" if unit else "")
        yield lambda done, total, perplexity=None: lines.update(done, total, _note(perplexity))
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *((MofNCompleteColumn(), TextColumn(unit)) if unit else (TaskProgressColumn(),)),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, note="")

        def update(done: int, total: int, perplexity: float | None = None) -> None:
            bar.update(task, completed=done, total=total, note=_note(perplexity))

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


def _note(perplexity: float | None) -> str:
    return "" if perplexity is None else f"perplexity {perplexity:.4f}"


def duration(seconds: float) -> str:
    """100 -> '2 min'."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


@contextmanager
def phases(units: Mapping[str, str] = MappingProxyType({})) -> Iterator[Callable[[str, int, int], None]]:
    """Show how far each part of the work is; called with its name, steps done and all steps.

    units: what steps of parts are; those of others say nothing to people.
    """
    at = ""
    update: Callable[[int, int], None] | None = None
    with ExitStack() as stack:

        def progress(what: str, done: int, total: int) -> None:
            nonlocal at, update
            if what != at:
                stack.close()
                at, update = what, stack.enter_context(count_bar(what, units.get(what)))
            if update is not None:
                update(done, total)

        yield progress
