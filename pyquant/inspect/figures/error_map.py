"""Draw a map of the error in a model: layers from left to right, kinds of tensors from top to bottom."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from pyquant.inspect.error_map import ErrorMap
from pyquant.inspect.figures.style import GRAY, STYLE, plain
from pyquant.inspect.tensor_error import TensorError

# Made for every kind of color vision; its lightness alone tells the values in gray: dark is worse.
COLORS = matplotlib.colormaps["cividis"]
EMPTY = "white"
MOST_VALUES = 32  # layers whose cells are wide enough for a number
GAP = 0.35  # between the layers and the tensors outside of them, in rows

Value = Callable[[TensorError], "float | None"]


def error_figure(error_map: ErrorMap) -> Figure:
    """Draw the error of each tensor relative to its weights, in dB, and if measured the weighted error.

    Kinds of tensors of which none differs are only named.
    """
    panels: list[tuple[str, Value]] = [("relative error", lambda tensor: tensor.sums.snr_db)]
    if error_map.imatrix:
        panels.append(("relative error weighted by importance", lambda tensor: tensor.sums.weighted_snr_db))
    shown = _shown(error_map)
    values = [value(tensor) for _, value in panels for tensor in shown]
    norm = _norm([value for value in values if value is not None])
    rows = _rows(shown)
    layers = sorted({tensor.layer for tensor in error_map.tensors if tensor.layer is not None})
    with matplotlib.rc_context(STYLE):
        width = np.clip(2.6 + 0.36 * len(layers), 7.5, 14)
        figure = Figure(figsize=(width, len(panels) * (0.8 + 0.28 * len(rows)) + 0.7))
        figure.set_layout_engine("constrained", h_pad=0.1)
        title = f"{Path(error_map.model).name} against {Path(error_map.base).name}"
        figure.suptitle(plain(title), x=0.01, ha="left", fontsize=11)
        axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
        for panel, (what, value) in zip(axes, panels):
            _draw(panel, rows, layers, value, norm)
            panel.set_title(what if _is_outside(rows[0]) else f"{what}, by layer")
        axes[-1].set_xlabel(_footnote(error_map, shown), loc="left", color=GRAY)
        bar = figure.colorbar(ScalarMappable(norm, COLORS), ax=list(axes), pad=0.01, aspect=25)
        bar.set_label("signal to error (dB); dark is worse")
        bar.outline.set_visible(False)
        return figure


def _shown(error_map: ErrorMap) -> list[TensorError]:
    different = {tensor.kind for tensor in error_map.tensors if not tensor.identical}
    return [tensor for tensor in error_map.tensors if tensor.kind in different or not different]


def _footnote(error_map: ErrorMap, shown: list[TensorError]) -> str:
    hidden = dict.fromkeys(tensor.kind for tensor in error_map.tensors if tensor not in shown)
    notes = []
    if any(tensor.identical for tensor in shown):
        notes.append("=: identical")
    if error_map.imatrix and any(not tensor.sums.importance for tensor in shown):
        notes.append("\u2013: not in the importance matrix")
    if hidden:
        notes.append(f"identical everywhere: {plain(', '.join(hidden))}")
    return "\n".join(textwrap.fill(note, 90, subsequent_indent="    ") for note in notes)


def _rows(shown: list[TensorError]) -> list[list[TensorError]]:
    """Put tensors of a kind into a row, those outside of layers below.

    A kind has several rows where a place has several of its tensors, such as `output` and `output.weight`.
    """
    rows: dict[tuple[bool, str, int], list[TensorError]] = {}
    at_place: Counter[tuple[str, int | None]] = Counter()
    for tensor in shown:
        place = tensor.kind, tensor.layer
        rows.setdefault((tensor.layer is None, tensor.kind, at_place[place]), []).append(tensor)
        at_place[place] += 1
    return sorted(rows.values(), key=_is_outside)


def _is_outside(row: list[TensorError]) -> bool:
    return row[0].layer is None


def _norm(values: list[float]) -> Normalize:
    if not values:
        return Normalize(0, 1)
    low, high = min(values), max(values)
    # No less than 3 dB: where all tensors are alike, the map shall look so.
    spread = max(0.0, 3 - (high - low)) / 2
    return Normalize(low - spread, high + spread)


def _draw(
    axes: Axes, rows: list[list[TensorError]], layers: list[int], value: Value, norm: Normalize
) -> None:
    all_columns = max(len(layers), 1)
    columns = {layer: column for column, layer in enumerate(layers)}
    gap = 0 if _is_outside(rows[0]) else GAP
    places = [i + gap * _is_outside(row) for i, row in enumerate(rows)]
    for y, row in zip(places, rows):
        for tensor in row:
            text = _text(tensor, value(tensor))
            if tensor.layer is None:
                _cell(axes, (0, y), all_columns, value(tensor), text, norm)
                continue
            if len(layers) > MOST_VALUES and value(tensor) is not None:
                text = ""
            _cell(axes, (columns[tensor.layer], y), 1, value(tensor), text, norm)
    axes.set_xlim(0, all_columns)
    axes.set_ylim(places[-1] + 1, 0)
    axes.set_yticks([y + 0.5 for y in places], [plain(_label(row)) for row in rows])
    numbered = list(columns.items())[:: 1 if len(layers) <= MOST_VALUES else 5]
    axes.set_xticks([column + 0.5 for _, column in numbered], [str(layer) for layer, _ in numbered])
    axes.tick_params(length=0, labelbottom=False, labeltop=True)
    for side in axes.spines.values():
        side.set_visible(False)


def _label(row: list[TensorError]) -> str:
    return f"{row[0].kind}  {', '.join(dict.fromkeys(tensor.type for tensor in row))}"


def _text(tensor: TensorError, value: float | None) -> str:
    if tensor.identical:
        return "="
    return "\u2013" if value is None else f"{value:.1f}"


def _cell(
    axes: Axes, corner: tuple[float, float], width: float, value: float | None, text: str, norm: Normalize
) -> None:
    color = EMPTY if value is None else COLORS(norm(value))
    axes.add_patch(Rectangle(corner, width, 1, facecolor=color, edgecolor="white", linewidth=0.8))
    on_dark = value is not None and norm(value) < 0.5
    x, y = corner[0] + width / 2, corner[1] + 0.5
    axes.text(x, y, text, ha="center", va="center", fontsize=7, color="white" if on_dark else "black")
