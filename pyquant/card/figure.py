"""Draw the KLD of models over their size."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure

from pyquant.card.markdown import plain
from pyquant.inspect.figures.style import BLUE, GRAY, STYLE, figure_bytes

Point = tuple[str, float, float, float]  # label, bytes, mean KLD in nats, and its standard error
LONGEST_LABEL = 40
LEAST = 1e-12  # nats; what is below has no place on a logarithmic axis


def kld_figure(points: Sequence[Point], text: str) -> bytes:
    """Return a PNG. points: one at least has a KLD of LEAST or more; text: what they were measured on."""
    drawn = [point for point in points if point[2] >= LEAST]
    with warnings.catch_warnings(), matplotlib.rc_context(STYLE):
        warnings.simplefilter("ignore")  # of letters that the font has not
        figure = Figure(figsize=(7.5, 4.2))
        figure.set_layout_engine("constrained")
        axes = figure.subplots()
        unit, name = (1e9, "GB") if max(point[1] for point in drawn) >= 1e9 else (1e6, "MB")
        middle = (min(point[1] for point in drawn) + max(point[1] for point in drawn)) / 2
        for label, size, kld, error in drawn:
            # Bars of a logarithmic axis end above 0.
            bar = [[min(error, 0.999 * kld)], [error]]
            axes.errorbar(size / unit, kld, bar, fmt="o", color=BLUE, ecolor=GRAY, capsize=2, ms=5)
            side = 1 if size <= middle else -1
            axes.annotate(
                plain(label)[:LONGEST_LABEL], (size / unit, kld), (6 * side, 4), textcoords="offset points",
                ha="left" if side > 0 else "right", fontsize=8, parse_math=False,
            )  # fmt: skip
        axes.set_yscale("log")
        axes.margins(x=0.12, y=0.15)
        axes.grid(visible=True, which="both", axis="y", color="#e5e5e5", lw=0.6)
        axes.set_axisbelow(True)
        axes.set_xlabel(f"size of the file ({name})")
        axes.set_ylabel("mean KLD (nats, ± one standard error)")
        axes.set_title(
            f"KLD from the base on {plain(text)[:LONGEST_LABEL]}: lower is better", parse_math=False
        )
        return figure_bytes(figure, "png")
