"""The figure of KLD for size: a series for each family of quantizers and calibration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from pyquant.errors import StudyError
from pyquant.inspect.figures.style import BLUE, GRAY, ORANGE, plain
from pyquant.study.results.comparison import BY_HESSIAN
from pyquant.study.results.figures import GRID, few_numbers
from pyquant.study.results.read import ModelResults, RowResults

# The rest of the palette of Okabe and Ito.
GREEN, VERMILLION, PURPLE, SKY, BLACK = "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000"

PER_BIT = 4.0  # of squared error, and so of KLD: 6.02 dB
LABEL_GAP = 0.032  # between names of points, as a share of the axis


@dataclass(frozen=True)
class Family:
    """Quantizers that are drawn alike."""

    name: str  # in the legend and on the panel
    color: str
    marker: str
    line: bool  # whether its points are of one quantizer with a parameter, and so joined
    # whether its points are named beside them; the axis says enough of those that differ in size alone
    labelled: bool
    # Whether a row is of this family. The first family that has it counts.
    has: Callable[[RowResults], bool]


def _how(row: RowResults) -> str | None:
    return row.knows["how"] if row.knows else None


def _is_ecsq(row: RowResults) -> bool:
    return row.mode == "ecsq"


FAMILIES = (
    Family("ecsq", PURPLE, "o", True, False, lambda row: _is_ecsq(row) and _how(row) == "diagonal"),
    Family("ecsq, error propagation", BLACK, "o", True, False,
           lambda row: _is_ecsq(row) and _how(row) == "error_propagation"),
    Family("ecsq, GPTQ", VERMILLION, "o", True, False, _is_ecsq),
    Family("mixtures found, error propagation", GREEN, "v", True, False,
           lambda row: row.mode == "recipe" and _how(row) in ("error_propagation", "best")),
    Family("mixtures found, GPTQ", ORANGE, "v", True, False, lambda row: row.mode == "recipe"),
    Family("multi-zero", ORANGE, "^", True, True, lambda row: row.mode == "q4_0_multizero"),
    Family("tables", GREEN, "D", False, True, lambda row: row.mode in ("q8_table", "table")),
    Family("stock types, best", GREEN, "s", False, True, lambda row: _how(row) == "best"),
    Family("stock types, GPTQ", BLUE, "s", False, True, lambda row: _how(row) in BY_HESSIAN),
    Family("stock types with imatrix", SKY, "s", False, True, lambda row: _how(row) == "imatrix"),
    Family("stock types", GRAY, "s", False, True, lambda row: True),
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """A quantizer in the figure."""

    family: Family
    calibration: str | None  # name of the calibration or file that tells it of inputs, or None
    label: str  # its parameters
    bits: float  # per weight: of the quantized tensors, or of the whole file (`of_whole_files`)
    kld: float  # mean KLD and its standard error, in nats
    error: float


def of_whole_files(model: ModelResults) -> bool:
    """Say whether sizes are of whole files: recipes are found for these."""
    return any(row.mode == "recipe" for row in model.rows)


def points(model: ModelResults, text: int) -> list[Point]:
    """List all quantizers whose size and KLD are known, in the study's order.

    The axis is logarithmic: a KLD of 0 has no place on it.
    """
    key = "bits" if of_whole_files(model) else "code_bits"
    listed = []
    for row in model.rows:
        quality, size = row.result("quality", text), row.result("size")
        if row.mode is None or quality is None or size is None or size["code_bits"] is None:
            continue
        kld = quality["kld"]
        if kld["mean"] <= 0:
            continue
        family = next(family for family in FAMILIES if family.has(row))
        calibration = row.knows["name"] if row.knows else None
        label = _short(row.alike)
        listed.append(Point(family, calibration, label, size[key], kld["mean"], kld["error"]))
    return listed


def _short(label: str) -> str:
    """'ggml:Q4_K' -> 'Q4_K', 'q8_table balanced pqz' -> 'balanced': colors tell modes."""
    mode, *parameters = [word for word in label.split() if word != "pqz"]
    return " ".join(parameters) or mode.removeprefix("ggml:")


def labelled(every: list[Point]) -> list[Point]:
    """Return the points that are named in the figure."""
    return [point for point in every if point.family.labelled]


def tradeoff(model: ModelResults, text: int) -> Callable[[Axes], None]:
    """Return a panel of KLD against code bits; lower and more to the left is better.

    The dotted line falls by 6.02 dB per bit, as the squared error does that steps cause.
    Raises StudyError: no quantizer has a place.
    """
    every = points(model, text)
    if not every:
        raise StudyError(f"no quantizer of {model.name} has both size and KLD (above 0); measure both")
    calibrations = list(dict.fromkeys(point.calibration for point in every if point.calibration))
    first = {None, *calibrations[:1]}

    def draw(axes: Axes) -> None:
        axes.set_yscale("log")
        for family in FAMILIES:
            for calibration in (None, *calibrations):
                mine = [
                    point for point in every if (point.family, point.calibration) == (family, calibration)
                ]
                _series(axes, family, sorted(mine, key=lambda point: point.bits), calibration in first)
        low, high = min(point.bits for point in every), max(point.bits for point in every)
        room = (high - low) or 1
        axes.set_xlim(low - 0.05 * room, high + 0.35 * room)  # room for the last names
        few_numbers(axes.yaxis, min(point.kld for point in every), max(point.kld for point in every))
        axes.margins(y=0.06)
        axes.autoscale_view(scalex=False)
        _slope(axes, every)
        _name_apart(axes, [point for point in labelled(every) if point.calibration in first])
        _legend(axes, every, calibrations)
        axes.set_xlabel(
            "bits per weight of the whole file"
            if of_whole_files(model)
            else "code bits: per weight of the quantized tensors, as stored"
        )
        axes.set_ylabel("mean KLD (nats, ± one standard error)")
        axes.set_title("KLD for size")
        axes.grid(color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)

    return draw


def _series(axes: Axes, family: Family, mine: list[Point], first: bool) -> None:
    if not mine:
        return
    axes.errorbar(
        [point.bits for point in mine],
        [point.kld for point in mine],
        yerr=[point.error for point in mine],
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
    """Draw the dotted line through the point that would be best if all had the same number of bits."""
    best = min(every, key=lambda point: point.kld * PER_BIT**point.bits)
    bits = np.array([min(point.bits for point in every), max(point.bits for point in every)])
    low, high = axes.get_ylim()
    axes.plot(bits, best.kld * PER_BIT ** (best.bits - bits), ":", color="black", linewidth=1, zorder=1)
    axes.set_ylim(low, high)


def _name_apart(axes: Axes, named: list[Point]) -> None:
    """Write names to the right of points, none over another, with a line where one had to move."""
    axes.figure.canvas.draw()  # the axis settles its limits only then
    to_axes = axes.transData + axes.transAxes.inverted()
    together: dict[tuple[float, float], list[str]] = {}
    for point in named:  # recentred codes, say, make the same model
        together.setdefault((point.bits, point.kld), []).append(plain(point.label))
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
    used = [family for family in FAMILIES if any(point.family is family for point in every)]
    handles = [
        Line2D([], [], color=family.color, marker=family.marker, linestyle="-" if family.line else "none",
               label=family.name)
        for family in used
    ]  # fmt: skip
    for number, name in enumerate(calibrations):
        face = "white" if number else GRAY
        marker: dict[str, Any] = {"marker": "o", "markerfacecolor": face, "linestyle": "none"}
        handles.append(Line2D([], [], color=GRAY, label=plain(f"calibration {name}"), **marker))
    handles.append(Line2D([], [], color="black", linestyle=":", label="6.02 dB per bit"))
    axes.legend(
        handles=handles, fontsize=7, ncols=2, loc="upper left", bbox_to_anchor=(0, -0.13), borderaxespad=0
    )
