"""Draw a map of the error in a model: layers from left to right, kinds of tensors from top to bottom."""

from __future__ import annotations

import textwrap
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
    inside, outside = _rows(shown)
    n_rows, n_layers = len(inside) + len(outside), _n_layers(error_map)
    with matplotlib.rc_context(STYLE):
        width = np.clip(2.6 + 0.36 * n_layers, 7.5, 14)
        figure = Figure(figsize=(width, len(panels) * (0.8 + 0.28 * n_rows) + 0.7))
        figure.set_layout_engine("constrained", h_pad=0.1)
        title = f"{Path(error_map.model).name} against {Path(error_map.base).name}"
        figure.suptitle(plain(title), x=0.01, ha="left", fontsize=11)
        axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
        for panel, (what, value) in zip(axes, panels):
            _draw(panel, inside, outside, n_layers, value, norm)
            panel.set_title(f"{what}, by layer" if inside else what)
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


def _n_layers(error_map: ErrorMap) -> int:
    return max((tensor.layer for tensor in error_map.tensors if tensor.layer is not None), default=-1) + 1


def _rows(shown: list[TensorError]) -> tuple[dict[str, list[TensorError]], dict[str, list[TensorError]]]:
    inside: dict[str, list[TensorError]] = {}
    outside: dict[str, list[TensorError]] = {}
    for tensor in shown:
        (outside if tensor.layer is None else inside).setdefault(tensor.kind, []).append(tensor)
    return inside, outside


def _norm(values: list[float]) -> Normalize:
    if not values:
        return Normalize(0, 1)
    low, high = min(values), max(values)
    # No less than 3 dB: where all tensors are alike, the map shall look so.
    spread = max(0.0, 3 - (high - low)) / 2
    return Normalize(low - spread, high + spread)


def _draw(
    axes: Axes,
    inside: dict[str, list[TensorError]],
    outside: dict[str, list[TensorError]],
    n_layers: int,
    value: Value,
    norm: Normalize,
) -> None:
    width = max(n_layers, 1)
    places: dict[str, float] = {}
    for row, (kind, tensors) in enumerate(inside.items()):
        places[_label(kind, tensors)] = row
        for tensor in tensors:
            text = _text(tensor, value(tensor))
            if n_layers > MOST_VALUES and value(tensor) is not None:
                text = ""
            _cell(axes, (tensor.layer or 0, row), 1, value(tensor), text, norm)
    for below, (kind, (tensor,)) in enumerate(outside.items()):
        y = below + len(inside) + (GAP if inside else 0)
        places[_label(kind, [tensor])] = y
        _cell(axes, (0, y), width, value(tensor), _text(tensor, value(tensor)), norm)
    axes.set_xlim(0, width)
    axes.set_ylim(max(places.values()) + 1, 0)
    axes.set_yticks([row + 0.5 for row in places.values()], [plain(label) for label in places])
    every = 1 if n_layers <= MOST_VALUES else 5
    layers = range(0, n_layers, every)
    axes.set_xticks([layer + 0.5 for layer in layers], [str(layer) for layer in layers])
    axes.tick_params(length=0, labelbottom=False, labeltop=True)
    for side in axes.spines.values():
        side.set_visible(False)


def _label(kind: str, tensors: list[TensorError]) -> str:
    return f"{kind}  {', '.join(dict.fromkeys(tensor.type for tensor in tensors))}"


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
