"""Draw how often each code occurs, and how long runs of zeros are."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pyquant.formulas import RUN_BINS, geometric_runs, shares
from pyquant.inspect.code_counts import CodeCounts, Histogram
from pyquant.inspect.figures.style import BLUE, ORANGE, STYLE, plain


def histogram_figure(histogram: Histogram) -> Figure:
    """Draw a row for each type: its codes, and its runs of zeros beside the geometric law."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9, 3.2 * len(histogram.totals) + 0.5), layout="constrained")
        name = Path(histogram.model).name + (f" through {_label(histogram)}" if histogram.mode else "")
        figure.suptitle(plain(name), x=0.01, ha="left", fontsize=11)
        axes = figure.subplots(len(histogram.totals), 2, squeeze=False, width_ratios=[3, 2])
        for row, total in zip(axes, histogram.totals):
            draw_codes(row[0], total)
            draw_runs(row[1], total)
        return figure


def _label(histogram: Histogram) -> str:
    shown = {key: value for key, value in histogram.parameters.items() if key != "table.values"}
    return ", ".join([histogram.mode or "", *(f"{key} {value}" for key, value in shown.items())])


def draw_codes(axes: Axes, total: CodeCounts) -> None:
    """Draw the shares of codes as bars, that of the zero code in another color."""
    book = total.codebook
    few = len(book.codes) == 16
    positions = book.codes
    colors = [ORANGE if i == book.zero else BLUE for i in range(len(positions))]
    axes.bar(positions, 100 * shares(total.counts), width=0.85 if few else 1.0, color=colors)
    if few:
        axes.set_xticks(positions, [f"{value}" for value in book.values])
    axes.set_xlabel("value of the code, in multiples of the block's scale")
    axes.set_ylabel("share of codes (%)")
    axes.set_title(
        f"{book.name}: {total.n_codes:,} codes, entropy {total.entropy:.3f} bits, "
        f"zeros {100 * total.zero_share:.2f} %"
    )


def draw_runs(axes: Axes, total: CodeCounts) -> None:
    """Draw the shares of the lengths of zero runs as bars, and the geometric law as diamonds."""
    lengths = range(1, RUN_BINS + 1)
    axes.bar(lengths, 100 * shares(total.runs), width=0.85, color=BLUE, label="measured")
    axes.plot(
        lengths,
        100 * geometric_runs(total.zero_share),
        "D",
        color=ORANGE,
        markersize=4,
        markeredgecolor="black",
        markeredgewidth=0.5,
        label="independent zeros",
    )
    axes.set_xticks(lengths, [*(str(n) if n % 2 and n < 15 else "" for n in lengths[:-1]), f"≥{RUN_BINS}"])
    axes.set_xlabel("length of a run of zeros")
    axes.set_ylabel("share of runs (%)")
    axes.set_title(f"{100 * total.isolated_share:.2f} % of {int(total.runs.sum()):,} runs are single zeros")
    axes.legend()
