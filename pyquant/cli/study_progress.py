"""Show how far a study is: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from pyquant.cli.output import remark
from pyquant.cli.progress import duration

if TYPE_CHECKING:
    from pyquant.study.run import Status

SECONDS_BETWEEN_LINES = 60.0  # of tasks at work, which may take hours


@contextmanager
def study_progress() -> Iterator[Callable[[Status], None]]:
    """The whole study and every task at work."""
    if not sys.stderr.isatty():
        yield StudyLines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    texts = (TextColumn(what, markup=False) for what in ("{task.fields[note]}", "{task.description}"))
    # Texts and models have any names, which may look like markup, or like the code of an emoji.
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    with Progress(BarColumn(20), *texts, console=console, transient=True) as bars:
        whole = bars.add_task("tasks done", total=1.0, note="")
        at_work: dict = {}

        def watch(status: Status) -> None:
            if status.finished and isinstance(status.finished[1], str):
                bars.console.print(f"failed: {status.finished[0]}: {status.finished[1]}")
            left = "" if status.seconds_left is None else f", {duration(status.seconds_left)} left"
            bars.update(whole, completed=status.share, note=f"{status.done} of {status.total}{left}")
            for name in at_work.keys() - status.running.keys():
                bars.remove_task(at_work.pop(name))
            for name, (share, what) in status.running.items():
                if name not in at_work:
                    at_work[name] = bars.add_task(name, total=1.0, note="")
                bars.update(at_work[name], completed=share, note=what)

        yield watch


class StudyLines:
    """Lines of what is no terminal: one for each finished task, and every minute one for each at work."""

    def __init__(self) -> None:
        self._last = monotonic()

    def __call__(self, status: Status) -> None:
        """Print what is due."""
        left = "" if not status.seconds_left else f"; {duration(status.seconds_left)} left"
        if status.finished:
            name, how = status.finished
            ending = f"failed: {how}" if isinstance(how, str) else f"{how:.1f} s"
            remark(f"[{status.done}/{status.total}] {name}: {ending}{left}")
        elif (now := monotonic()) - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            for name, (share, what) in status.running.items():
                remark(f"{name}: {share:.0%}, {what}{left}" if what else f"{name}: begun{left}")
