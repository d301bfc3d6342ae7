"""Figures of a study: panels that draw one thing, and figures that put panels side by side."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

from pyquant.inspect.figures.style import BLUE, GRAY, ORANGE, STYLE, plain

GRID = "#dddddd"
OTHERS = (ORANGE, "#009E73", "#CC79A7")  # of the palette of Okabe and Ito
PANEL = (4.5, 3.0)  # inches: about a phone's width at the fonts' size
LETTER, LETTERS = 0.07, 24  # inches of one, and how many leave room enough in a panel
MOST_LINEAR = 4  # largest over smallest value, above which an axis is logarithmic
MOST_TICKS = 5  # numbers on a logarithmic axis
CAP = 100  # times the reference, or a part of it: what is beyond stands at the edge, with its number

Panel = Callable[[Axes], None]


@dataclass(frozen=True)
class Drawing:
    """A figure with the sentence that stands below it."""

    caption: str
    figure: Figure


def figure(*panels: Panel, height: float = PANEL[1]) -> Figure:
    """Draw panels side by side, wide enough for the names in them.

    panels: functions that draw into axes.
    height: in inches.
    """
    with matplotlib.rc_context(STYLE):
        width = max([PANEL[0], *(panel.width for panel in panels if isinstance(panel, Points))])
        drawn = Figure(figsize=(width * len(panels), height), layout="constrained")
        for panel, axes in zip(panels, drawn.subplots(1, len(panels), squeeze=False)[0]):
            panel(axes)
        return drawn


def tall(n_rows: int) -> float:
    """Return the height, in inches, of a panel with a line for each row."""
    return 1.0 + 0.24 * n_rows


@dataclass(frozen=True)
class Points:
    """A panel with a dot and its error for each row."""

    # Of the rows. Where a value and the reference differ by more than a factor of CAP, its number stands at
    # the edge.
    labels: list[str]
    values: list[float]
    # what is drawn to both sides of the dots: a number, or how far to the left and to the right
    errors: list[float] | list[tuple[float, float]]
    reference: float | None  # value of the unquantized model, drawn as a line; None for no line
    axis: str  # what the axis and the panel are called
    title: str
    name: str = ""  # what the dots are called, where there are others
    # further dots for each row, by what they are called
    others: dict[str, list[float]] = field(default_factory=dict)

    @property
    def width(self) -> float:
        """Inches, of which the names leave most of a panel to the dots."""
        return PANEL[0] + LETTER * max(0, max(map(len, self.labels)) - LETTERS)

    def _inside(self, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        if self.reference is None:
            return np.isfinite(values)
        return (values <= CAP * self.reference) & (values >= self.reference / CAP)

    def __call__(self, axes: Axes) -> None:
        """Draw."""
        at = np.arange(len(self.labels))[::-1]
        values, errors = np.array(self.values), np.array(self.errors).T
        inside = self._inside(values)
        if self.reference is not None:
            axes.axvline(self.reference, color=GRAY, linewidth=1, linestyle="--")
        for color, (name, more) in zip(OTHERS, self.others.items()):
            near = self._inside(np.array(more))
            axes.plot(np.array(more)[near], at[near], "o", color=color, markersize=4, label=plain(name))
        axes.errorbar(
            values[inside], at[inside], xerr=errors[..., inside],
            fmt="o", color=BLUE, ecolor="black", capsize=3, markersize=5, label=plain(self.name),
        )  # fmt: skip
        axes.set_yticks(at, [plain(label) for label in self.labels])
        axes.set_ylim(-0.6, len(self.labels) - 0.4)
        axes.set_xlabel(plain(self.axis), loc="right")  # there is more room to the left, below the names
        axes.set_title(plain(self.title))
        axes.grid(axis="x", color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        for y, value in zip(at[~inside], values[~inside]):
            right = value > values[inside].max(initial=0)
            axes.annotate(
                _number(float(f"{value:.2g}"), 0), (int(right), y), (-14 if right else 14, 0), fontsize=7.5,
                ha="right" if right else "left", va="center",
                xycoords=axes.get_yaxis_transform(), textcoords="offset points",
                arrowprops={"arrowstyle": "-|>", "color": BLUE, "shrinkA": 1, "shrinkB": 0},
            )  # fmt: skip
        drawn = np.array([*values, *itertools.chain(*self.others.values())])
        scale_x(axes, [*drawn[self._inside(drawn)], *([] if self.reference is None else [self.reference])])
        if self.others:
            handles, names = axes.get_legend_handles_labels()
            axes.legend(
                [handles[-1], *handles[:-1]], [names[-1], *names[:-1]],
                fontsize=7, ncols=4, loc="upper right", bbox_to_anchor=(1, -0.13),
            )  # fmt: skip


def scale_x(axes: Axes, values: Sequence[float]) -> None:
    """Put few and plain numbers on the axis, and make it logarithmic where positive values are far apart."""
    values = [value for value in values if value > 0]
    if not values or max(values) / min(values) < MOST_LINEAR:
        axes.locator_params(axis="x", nbins=MOST_TICKS)
        return
    axes.set_xscale("log")
    few_numbers(axes.xaxis, min(values), max(values))


def few_numbers(axis: matplotlib.axis.Axis, low: float, high: float) -> None:
    """Put at most MOST_TICKS plain numbers on a logarithmic axis from `low` to `high`."""
    decades = float(np.log10(high / low))
    subs = (1, 2, 5) if decades < 1.2 else (1, 3) if decades < 2.2 else (1,)
    axis.set_major_locator(LogLocator(subs=subs, numticks=MOST_TICKS))
    axis.set_minor_formatter(NullFormatter())
    if decades > MOST_TICKS:
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(_number))


def _number(value: float, _: int) -> str:
    return f"{value:,.12g}" if 1e-4 <= value < 1e6 else re.sub(r"e[+]?(-?)0*", r"e\1", f"{value:.2g}")
