"""Set how figures look, and write them: the same bytes from the same data.

Readable in print, in gray and for the color-blind.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from pyquant.errors import OutputError
from pyquant.files.output_file import check_output, write_bytes

FORMATS = (".png", ".svg", ".pdf")
# Colors of the palette of Okabe and Ito (2008), told apart with every kind of color vision.
BLUE, ORANGE, GRAY = "#0072B2", "#E69F00", "#666666"

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so figures look alike everywhere
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "svg.hashsalt": "pyquant",
    "svg.fonttype": "none",
}


def plain(name: str) -> str:
    """Make a label of a name that people chose: matplotlib reads no formula in it, and can draw it."""
    drawn = "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in name)
    return drawn.replace("$", r"\$")


def check_figure(path: Path, *, sources: list[Path], force: bool) -> None:
    """Refuse a path where no figure can be written. Raises OutputError."""
    if path.suffix.lower() not in FORMATS:
        raise OutputError(f"{path}: a figure's name ends in one of {', '.join(FORMATS)}")
    check_output(path, sources=sources, force=force)


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure, complete or not at all.

    path: its ending is the format: .png, .svg or .pdf. Raises OutputError.
    """
    path = Path(path)
    content = figure_bytes(figure, path.suffix.lower().removeprefix("."))
    write_bytes(path, content, sources=[], force=True)


def figure_bytes(figure: Figure, format: str) -> bytes:
    """Return a figure as a file. format: png, svg or pdf."""
    buffer = io.BytesIO()
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(format)
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format=format, dpi=200, metadata=dates)
    return buffer.getvalue()
