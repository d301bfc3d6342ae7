"""How commands talk: results on stdout, progress and remarks on stderr."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any


def print_json(result: Any) -> None:
    """The result, indented, alone on stdout."""
    json.dump(result, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    """A table whose first column is text and whose others are numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    # Into a pipe or a file a table is as wide as it needs to be.
    width = None if sys.stdout.isatty() else 10_000
    Console(width=width, highlight=False).print(table)


def print_lines(lines: Mapping[str, str]) -> None:
    """Names and values, a line each."""
    for name, value in lines.items():
        print(f"{name:<16} {value}")


def remark(text: str) -> None:
    """A line beside the result."""
    print(text, file=sys.stderr)


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int, str], None] | None]:
    """A bar with rate and time left, for (bytes done, all bytes, name of the part); on a terminal only."""
    if not sys.stderr.isatty():
        yield None
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
        TextColumn(what),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[part]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, part="")
        yield lambda done, total, part: bar.update(task, completed=done, total=total, part=part)


@contextmanager
def count_bar(what: str, unit: str = "chunks") -> Iterator[Callable[..., None] | None]:
    """A bar with the time left, for (done, all[, perplexity so far]); on a terminal only."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, note="")

        def update(done: int, total: int, perplexity: float | None = None) -> None:
            note = "" if perplexity is None else f"perplexity {perplexity:.4f}"
            bar.update(task, completed=done, total=total, note=note)

        yield update


def parse_size(option: str, text: str) -> int:
    """'1.5GB' -> 1500000000; decimal units, or binary ones such as GiB. Raises ConfigError."""
    from pyquant.errors import ConfigError

    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([kMGT]?)(i?)B?", text.strip())
    if not match:
        raise ConfigError(f"{option}: {text!r} is not a size such as 800MB, 1.5GB or 2GiB")
    power = "kMGT".index(match[2]) + 1 if match[2] else 0
    return round(float(match[1]) * (1024 if match[3] else 1000) ** power)


def size(n_bytes: float) -> str:
    """1234567 -> '1.2 MB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} TB"


def number(value: float | None, digits: str = ".4g") -> str:
    """The value, or a dash where there is none."""
    return "-" if value is None else format(value, digits)


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"
