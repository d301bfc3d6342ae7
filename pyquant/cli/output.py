"""Output of commands: results on stdout, remarks on stderr."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from pyquant.cli import memory, streams
from pyquant.errors import OutputError

if TYPE_CHECKING:
    from rich.console import Console

    from pyquant.models.model_file import ModelFile

SHORTEST_LABEL = 12  # characters; a longer one is shortened before columns go below each other


def show(
    result: dict[str, Any], as_json: bool, show_words: Callable[[dict[str, Any]], None], *, keep: bool = False
) -> None:
    """Prints a command's result.

    Raises OutputError: standard output takes no more; the message names the file that has the result.
    """
    memory.release()
    try:
        if as_json:
            print_json(result)
        else:
            show_words(result)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has all that it wanted, as `| head` does
        streams.silence()
        raise typer.Exit from None
    except OSError as error:
        streams.silence()
        raise OutputError(f"standard output: {error.strerror}{_kept(result) if keep else ''}") from None


def _kept(result: dict[str, Any]) -> str:
    try:
        number, name = tempfile.mkstemp(prefix="pyquant-", suffix=".json")
        with os.fdopen(number, "w") as file:
            json.dump(result, file, indent=2)
    except OSError:
        return ""
    return f"; the result is kept in {name}"


def made_by() -> dict[str, str]:
    """Says what makes a result, for whoever publishes it."""
    from importlib.metadata import version

    from pyquant.machine.cpu import cpu_name

    return {"pyquant": version("pyquant"), "cpu": cpu_name()}


def made_of(models: Iterable[ModelFile]) -> dict[str, str]:
    """Says which files a result is of, by their paths: a card refuses other ones. Call it before they run."""
    from pyquant.files.fingerprint import fingerprint

    return {str(model.path): fingerprint(model.paths) for model in models}


def print_json(result: Any) -> None:
    """Prints the result, indented, alone on stdout."""
    json.dump(result, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str | None = None,
    labels: int = 1,
    width: int | None = None,
) -> None:
    """Prints a table whose first columns are labels and whose others are figures.

    On a terminal that is too narrow, labels lose their middle; if that is not enough, the table goes on
    below. Figures are never cut. Into a pipe or a file a table is as wide as it needs to be.

    width: labels lose their middle where they would make the table wider, columns are a blank closer, and
    into a pipe the table does not go on below.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    console = _console()
    layout = _Layout(columns, rows, labels, gap=3 if width is None else 2)
    for group in layout.groups(console.width):
        table = Table(
            title=title,
            box=SIMPLE_HEAD,
            title_justify="left",
            pad_edge=False,
            collapse_padding=width is not None,
        )
        for i in group:
            table.add_column(columns[i], justify="left" if i < labels else "right", no_wrap=True)
        widths = layout.label_widths(group, min(console.width, width or console.width))
        for row in rows:
            table.add_row(*(shorten(row[i], widths[i]) if i < labels else row[i] for i in group))
        # A figure that is wider than the terminal is printed whole.
        wide = max(console.width, layout.width(group, widths), len(title or ""))
        _console(wide).print(table)


def _console(width: int | None = None) -> Console:
    """Make what prints texts as they are: a name may look like markup, or like the code of an emoji."""
    from rich.console import Console

    width = width or (None if sys.stdout.isatty() else 10_000)
    return Console(width=width, highlight=False, markup=False, emoji=False)


@dataclass(frozen=True)
class _Layout:
    """How wide the columns of a table are; gap: blanks from one to the next."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int
    gap: int

    def cells(self, i: int) -> int:
        from rich.cells import cell_len

        return max(cell_len(text) for text in [self.columns[i], *(row[i] for row in self.rows)])

    def width(self, group: Sequence[int], widths: Mapping[int, int]) -> int:
        return sum(widths.get(i) or self.cells(i) for i in group) + self.gap * len(group)

    def label_widths(self, group: Sequence[int], width: int) -> dict[int, int]:
        # The widest label gives way first.
        widths = {i: self.cells(i) for i in range(self.labels)}
        while (too_wide := self.width(group, widths) - width) > 0:
            widest = max(widths, key=lambda i: widths[i])
            if widths[widest] <= SHORTEST_LABEL:
                break
            rest = sorted(widths.values())[-2] if self.labels > 1 else 0
            widths[widest] = max(SHORTEST_LABEL, widths[widest] - too_wide, min(rest, widths[widest] - 1))
        return widths

    def groups(self, width: int) -> list[list[int]]:
        """Columns that fit beside each other, each time with the labels."""
        shortest = {i: min(self.cells(i), SHORTEST_LABEL) for i in range(self.labels)}
        groups = [list(range(self.labels))]
        for i in range(self.labels, len(self.columns)):
            if len(groups[-1]) > self.labels and self.width([*groups[-1], i], shortest) > width:
                groups.append(list(range(self.labels)))
            groups[-1].append(i)
        return groups


def shorten(text: str, width: int) -> str:
    """The text, without its middle if it is wider: beginnings and endings tell names apart."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    tail = text[len(text) - (width - 1) // 2 :]
    return set_cell_size(text, width - 1 - cell_len(tail)).rstrip() + "…" + tail


def print_sentence(text: str) -> None:
    """Prints words, which on a terminal go on below."""
    _console().print(text)


def print_lines(lines: Mapping[str, str]) -> None:
    """Prints names and values, a line each."""
    for name, value in lines.items():
        print(f"{name:<16} {value}")


def written(files: Sequence[str]) -> str:
    """Names a file, or the first of some shards."""
    return files[0] if len(files) == 1 else f"{files[0]}, the first of {len(files)} shards"


def remark(text: str) -> None:
    """Prints a line beside the result. Where nobody reads it, or nothing takes it, work goes on."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)


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
    """0.1234 -> '12.34 %'; a dash where there is none."""
    return "-" if share is None else f"{100 * share:.2f} %"
