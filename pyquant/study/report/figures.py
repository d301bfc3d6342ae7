"""Figures of a study: panels that draw one thing, and figures that put panels side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from pyquant.errors import StudyError
from pyquant.figures.codes import draw_codes, draw_runs
from pyquant.figures.style import BLUE, GRAY, ORANGE, STYLE
from pyquant.study.report.results import ModelResults, RowResults, code_statistics

PANEL = (4.5, 3.0)  # inches: about a phone's width at the fonts' size
LETTER, LETTERS = 0.07, 24  # inches of one, and how many leave room enough in a panel
MOST_LINEAR = 4  # largest over smallest value, above which an axis is logarithmic

Panel = Callable[[Axes], None]


def figure(*panels: Panel, height: float = PANEL[1]) -> Figure:
    """Panels side by side, wide enough for the names in them."""
    with matplotlib.rc_context(STYLE):
        width = max([PANEL[0], *(panel.width for panel in panels if isinstance(panel, Points))])
        drawn = Figure(figsize=(width * len(panels), height), layout="constrained")
        for panel, axes in zip(panels, drawn.subplots(1, len(panels), squeeze=False)[0]):
            panel(axes)
        return drawn


def codes(row: RowResults, *, by_code: bool = False, marks: RowResults | None = None) -> Panel:
    """How often each code occurs. by_code: named by the stored code, not by the value it stands for.
    marks: a table, whose values are marked below the bars."""
    found = code_statistics(row)

    def draw(axes: Axes) -> None:
        draw_codes(axes, found)
        axes.set_title(f"{row.label}: entropy {found.entropy:.3f} bits, zeros {100 * found.zero_share:.2f} %")
        if len(found.codebook.codes) == 16:
            axes.tick_params(axis="x", labelsize=7.5)
        if by_code:
            axes.set_xticks(found.codebook.codes, [str(code) for code in found.codebook.codes])
            axes.set_xlabel("code as it is stored")
        if marks is not None:
            values = code_statistics(marks).codebook.values
            below = np.full(len(values), -0.025)
            axes.plot(
                values,
                below,
                "^",
                color=ORANGE,
                markeredgecolor="black",
                markeredgewidth=0.4,
                markersize=5,
                transform=axes.get_xaxis_transform(),
                clip_on=False,
                label=f"values of {marks.label}",
            )
            axes.tick_params(axis="x", pad=7)
            axes.legend(loc="upper left", bbox_to_anchor=(0.05, 1), fontsize=7.5)

    return draw


def runs(row: RowResults) -> Panel:
    """How long runs of zeros are, beside the geometric law."""
    found = code_statistics(row)

    def draw(axes: Axes) -> None:
        draw_runs(axes, found)
        chance = 1 - found.zero_share
        axes.set_title(
            f"{row.label}: {100 * found.isolated_share:.2f} % single, {100 * chance:.2f} % by chance"
        )

    return draw


@dataclass(frozen=True)
class Points:
    """A dot with its error for each row. reference: a line, of the unquantized model."""

    labels: list[str]
    values: list[float]
    errors: list[float]
    reference: float | None
    axis: str
    title: str

    @property
    def width(self) -> float:
        """Inches, of which the names leave most of a panel to the dots."""
        return PANEL[0] + LETTER * max(0, max(map(len, self.labels)) - LETTERS)

    def __call__(self, axes: Axes) -> None:
        at = np.arange(len(self.labels))[::-1]
        values = np.array(self.values)
        if self.reference is not None:
            axes.axvline(self.reference, color=GRAY, linewidth=1, linestyle="--")
        axes.errorbar(
            values,
            at,
            xerr=np.array(self.errors),
            fmt="o",
            color=BLUE,
            ecolor="black",
            capsize=3,
            markersize=5,
        )
        axes.set_yticks(at, self.labels)
        axes.set_ylim(-0.6, len(self.labels) - 0.4)
        axes.set_xlabel(self.axis)
        axes.set_title(self.title)
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        everything = [*values, self.reference] if self.reference is not None else values
        _scale(axes, "x", everything)


def _scale(axes: Axes, which: str, values: Sequence[float]) -> None:
    """Logarithmic, with plain numbers, where values are far apart."""
    values = [value for value in values if value > 0]
    if not values or max(values) / min(values) < MOST_LINEAR:
        return
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis = axes.xaxis if which == "x" else axes.yaxis
    decades = np.log10(max(values) / min(values))
    subs = (1, 2, 5) if decades < 1.2 else (1, 3) if decades < 2.2 else (1,)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_minor_formatter(NullFormatter())
    if min(values) >= 0.01:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))


def perplexities(model: ModelResults, text: int, labels: Sequence[str] | None = None) -> Panel:
    """Perplexity on a text with its standard error, of all quantizers or those named."""
    rows = _measured(model, text, labels)
    base = model.rows[0].quality[text]
    return Points(
        labels=[row.label for row, _ in rows],
        values=[found["perplexity"] for _, found in rows],
        errors=[found["perplexity_error"] for _, found in rows],
        reference=base["perplexity"] if base else None,
        axis=f"perplexity on {model.texts[text]} (± one standard error)",
        title="Perplexity",
    )


def divergences(model: ModelResults, text: int, labels: Sequence[str] | None = None) -> Panel:
    """Mean Kullback-Leibler divergence from the unquantized model, with its standard error."""
    rows = [(row, found) for row, found in _measured(model, text, labels) if row.mode]
    return Points(
        labels=[row.label for row, _ in rows],
        values=[found["kld"]["mean"] for _, found in rows],
        errors=[found["kld"]["error"] for _, found in rows],
        reference=None,
        axis="mean divergence (nats, ± one standard error)",
        title="Divergence from the unquantized model",
    )


def speeds(model: ModelResults, test: str) -> Panel:
    """Tokens per second relative to the unquantized model. test: prompt or generation."""
    rows = [row for row in model.rows if row.speed]
    found = [row.speed[test] for row in rows]

    def draw(axes: Axes) -> None:
        Points(
            labels=[row.label for row in rows],
            values=[one["ratio"] for one in found],
            errors=[0.0] * len(rows),
            reference=1.0,
            axis="tokens per second, relative to the unquantized model",
            title={"prompt": "Speed of prompt processing", "generation": "Speed of generation"}[test],
        )(axes)
        at = np.arange(len(rows))[::-1]
        axes.hlines(
            at, [f["ratio_low"] for f in found], [f["ratio_high"] for f in found], color="black", lw=1
        )

    return draw


def _measured(
    model: ModelResults, text: int, labels: Sequence[str] | None
) -> list[tuple[RowResults, dict[str, Any]]]:
    rows = model.rows if labels is None else [model.row(label) for label in labels]
    found = [(row, row.quality[text]) for row in rows if len(row.quality) > text]
    there = [(row, result) for row, result in found if result is not None]
    if not there:
        raise StudyError(f"no quality of {model.name} in the study; `pyquant study run` measures it")
    return there
