"""The figure of divergence for size: a series for each family of quantizers and calibration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from pyquant.figures.style import BLUE, GRAY, ORANGE
from pyquant.study.report.comparison import COMPENSATES
from pyquant.study.report.results import ModelResults, RowResults

# The rest of the palette of Okabe and Ito.
GREEN, VERMILLION, PURPLE, SKY, BLACK = "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000"

PER_BIT = 4.0  # of squared error, and so of divergence: 6.02 dB
LABEL_GAP = 0.032  # between names of points, as a share of the axis


@dataclass(frozen=True)
class Family:
    """Quantizers that are drawn alike. line: whether its points are of one quantizer with a parameter."""

    name: str
    color: str
    marker: str
    line: bool
    has: Callable[[RowResults], bool]


def _how(row: RowResults) -> str | None:
    return row.knows["how"] if row.knows else None


FAMILIES = (
    Family("uniform", PURPLE, "o", True, lambda row: row.mode == "uniform" and _how(row) == "diagonal"),
    Family(
        "uniform, in order", BLACK, "o", True, lambda row: row.mode == "uniform" and _how(row) == "sequential"
    ),
    Family("uniform, compensated", VERMILLION, "o", True, lambda row: row.mode == "uniform"),
    Family("multi-zero", ORANGE, "^", True, lambda row: row.mode == "q4_0_multizero"),
    Family("tables", GREEN, "D", False, lambda row: row.mode in ("q8_table", "table")),
    Family("stock types, compensated", BLUE, "s", False, lambda row: _how(row) in COMPENSATES),
    Family("stock types with imatrix", SKY, "s", False, lambda row: _how(row) == "imatrix"),
    Family("stock types", GRAY, "s", False, lambda row: True),
)
UNIFORM = FAMILIES[:2]  # whose size is not in their name, but on the axis


@dataclass(frozen=True)
class Point:
    """bits: per weight of the quantized tensors. calibration: the name of what it knows, or None."""

    family: Family
    calibration: str | None
    label: str
    bits: float
    kld: float
    error: float


def points(model: ModelResults, text: int) -> list[Point]:
    """All quantizers whose size and divergence are known, in the study's order."""
    found = []
    for row in model.rows:
        quality = row.quality[text] if len(row.quality) > text else None
        if row.mode is None or quality is None or row.size is None or row.size["quantized_bits"] is None:
            continue
        kld = quality["kld"]
        family = next(family for family in FAMILIES if family.has(row))
        calibration = row.knows["name"] if row.knows else None
        bits = row.size["quantized_bits"]
        found.append(Point(family, calibration, _short(row.alike), bits, kld["mean"], kld["error"]))
    return found


def _short(label: str) -> str:
    """'ggml:Q4_K' -> 'Q4_K', 'q8_table balanced packed' -> 'balanced': colors tell modes."""
    mode, *parameters = [word for word in label.split() if not word.endswith("packed")]
    return " ".join(parameters) or mode.removeprefix("ggml:")


def tradeoff(model: ModelResults, text: int) -> Callable[[Axes], None]:
    """Divergence against bits per weight; lower and more to the left is better. The dotted line falls
    by 6.02 dB per bit, as squared error does that steps cause."""
    every = points(model, text)
    calibrations = list(dict.fromkeys(one.calibration for one in every if one.calibration))
    first = {None, *calibrations[:1]}

    def draw(axes: Axes) -> None:
        axes.set_yscale("log")
        for family in FAMILIES:
            for calibration in (None, *calibrations):
                mine = [one for one in every if (one.family, one.calibration) == (family, calibration)]
                _series(axes, family, sorted(mine, key=lambda one: one.bits), calibration in first)
        low, high = min(one.bits for one in every), max(one.bits for one in every)
        room = (high - low) or 1
        axes.set_xlim(low - 0.05 * room, high + 0.35 * room)  # room for the last names
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.12g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.margins(y=0.06)
        axes.autoscale_view(scalex=False)
        _slope(axes, every)
        _name_apart(axes, [one for one in every if one.calibration in first and one.family not in UNIFORM])
        _legend(axes, every, calibrations)
        axes.set_xlabel("bits per weight of the quantized tensors, as stored")
        axes.set_ylabel("mean divergence (nats, ± one standard error)")
        axes.set_title("Divergence for size")
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)

    return draw


def _series(axes: Axes, family: Family, mine: list[Point], first: bool) -> None:
    if not mine:
        return
    axes.errorbar(
        [one.bits for one in mine],
        [one.kld for one in mine],
        yerr=[one.error for one in mine],
        fmt=family.marker,
        linestyle=("-" if first else "--") if family.line else "none",
        linewidth=1,
        color=family.color,
        markerfacecolor=family.color if first else "white",
        markersize=4.5,
        elinewidth=0.8,
        capsize=2,
    )


def _slope(axes: Axes, every: list[Point]) -> None:
    """Through the best point, had all the same number of bits."""
    best = min(every, key=lambda one: one.kld * PER_BIT**one.bits)
    bits = np.array([min(one.bits for one in every), max(one.bits for one in every)])
    low, high = axes.get_ylim()
    axes.plot(bits, best.kld * PER_BIT ** (best.bits - bits), ":", color="black", linewidth=1, zorder=1)
    axes.set_ylim(low, high)


def _name_apart(axes: Axes, named: list[Point]) -> None:
    """Names to the right of points, none over another, with a line where one had to move."""
    axes.figure.canvas.draw()  # the axis settles its limits only then
    to_axes = axes.transData + axes.transAxes.inverted()
    together: dict[tuple[float, float], list[str]] = {}
    for one in named:  # recentred codes, say, make the same model
        together.setdefault((one.bits, one.kld), []).append(one.label)
    last = -np.inf
    for at, labels in sorted(together.items(), key=lambda item: item[0][1]):
        x, y = to_axes.transform(at)
        last = max(y, last + LABEL_GAP)
        axes.annotate(
            ", ".join(labels),
            at,
            (x + 0.04, last),
            textcoords="axes fraction",
            fontsize=6.5,
            va="center",
            arrowprops={"arrowstyle": "-", "color": GRAY, "linewidth": 0.4, "shrinkB": 3, "shrinkA": 1},
        )


def _legend(axes: Axes, every: list[Point], calibrations: list[str]) -> None:
    used = [family for family in FAMILIES if any(one.family is family for one in every)]
    handles = [
        Line2D([], [], color=f.color, marker=f.marker, linestyle="-" if f.line else "none", label=f.name)
        for f in used
    ]
    for number, name in enumerate(calibrations):
        face = "white" if number else GRAY
        marker = {"marker": "o", "markerfacecolor": face, "linestyle": "none"}
        handles.append(Line2D([], [], color=GRAY, label=f"calibration {name}", **marker))
    handles.append(Line2D([], [], color="black", linestyle=":", label="6.02 dB per bit"))
    axes.legend(
        handles=handles, fontsize=7, ncols=2, loc="upper left", bbox_to_anchor=(0, -0.13), borderaxespad=0
    )
