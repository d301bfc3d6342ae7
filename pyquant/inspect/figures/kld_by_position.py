"""Draw KLD along the context: a panel for each text, a line for each model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pyquant.evaluate.comparison import Comparison
from pyquant.inspect.figures.style import BLUE, GRAY, ORANGE, STYLE, plain
from pyquant.llama.cache_types import F16_CACHE

# Of the palette of Okabe and Ito; where it ends, it begins again with another kind of line.
COLORS = (BLUE, ORANGE, "#009E73", "#CC79A7", GRAY)
LINES = ("-", "--", ":", "-.")


def kld_by_position_figure(comparisons: Sequence[Comparison]) -> Figure:
    """Draw the mean KLD of each model at each part of the context, with one standard error."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.5, 0.6 + 2.6 * len(comparisons)))
        figure.set_layout_engine("constrained")
        panels = figure.subplots(len(comparisons), 1, squeeze=False)[:, 0]
        for axes, comparison in zip(panels, comparisons):
            _draw(axes, comparison)
        panels[-1].set_xlabel("position in the context (tokens)")
        return figure


def _draw(axes: Axes, comparison: Comparison) -> None:
    spans = comparison.by_position
    middle = [(span.first + span.last) / 2 for span in spans]
    lines, labels = [], []
    for i, (file, cache) in enumerate(zip(comparison.files, comparison.caches[1:])):
        kld = np.array([span.kld[i] for span in spans])
        error = np.array([span.error[i] for span in spans])
        color, line = COLORS[i % len(COLORS)], LINES[i // len(COLORS) % len(LINES)]
        lines += axes.plot(middle, kld, line, color=color)
        labels.append(plain(Path(file).name + ("" if cache == F16_CACHE else f" ({cache})")))
        axes.fill_between(middle, kld - error, kld + error, color=color, alpha=0.2, linewidth=0)
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.set_ylabel("mean KLD (nats)")
    axes.set_title(plain(comparison.name))
    axes.legend(lines, labels, loc="upper left", bbox_to_anchor=(1.0, 1.0))
