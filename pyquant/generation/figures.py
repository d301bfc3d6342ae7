"""Draw what a record of drafting says: when drafts are accepted, how long they are, what policies take."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from pyquant.generation.speculative.replay.search import Found, search
from pyquant.generation.speculative.replay.simulate import ORACLE, Simulation
from pyquant.inspect.figures.style import BLUE, GRAY, ORANGE, STYLE, check_figure, save_figure

BINS = np.arange(0, 10.25, 0.25)  # nats; the last one has what is beyond
LONGEST_SHOWN = 200  # tokens of a text that are drawn
# Parameters along the axes of the surfaces of the thesis's three strategies.
SURFACES = {
    "static": ("threshold", None),
    "moving_average": ("factor", "n"),
    "cumulative": ("threshold", "n"),
}


def draw_record(simulation: Simulation, folder: Path, *, force: bool = False) -> list[Path]:
    """Draw all figures of a record, as PNG files, and return their paths.

    Parameters
    ----------
    simulation
    folder
        Made if it is not there.
    force
        Replace files.

    Raises
    ------
    OutputError
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawings = {
        "entropies": entropy_histogram,
        "entropy-along": entropy_along,
        "lengths-along": lengths_along,
        "surfaces": surfaces,
    }
    paths = [folder / f"{name}.png" for name in drawings]
    for path in paths:
        check_figure(path, sources=[], force=force)
    for path, draw in zip(paths, drawings.values()):
        save_figure(draw(simulation), path)
    return paths


def entropy_histogram(simulation: Simulation) -> Figure:
    """Draw how many tokens have which entropy, the accepted apart from the refused."""
    entropy = np.minimum(simulation.record.joined("entropy"), BINS[-1] - 1e-6)
    accepted = np.concatenate(simulation.accepted)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7, 3.5), layout="constrained")
        axes = figure.subplots()
        n_accepted, n_refused = (np.histogram(entropy[those], BINS)[0] for those in (accepted, ~accepted))
        bars = {"align": "edge", "width": BINS[1]}
        axes.bar(BINS[:-1], n_accepted, color=BLUE, label=f"accepted: {accepted.sum():,} tokens", **bars)
        label = f"refused: {(~accepted).sum():,} tokens"
        axes.bar(BINS[:-1], n_refused, bottom=n_accepted, color=ORANGE, hatch="///", label=label, **bars)
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(0, 2 * max(n_accepted + n_refused))
        axes.set_xlabel("entropy of the draft's distribution (nats)")
        axes.set_ylabel("tokens")
        axes.set_title(_pair(simulation))
        axes.legend()
        return figure


def entropy_along(simulation: Simulation) -> Figure:
    """Draw the draft's entropies along the longest text, and which tokens are refused."""
    number = max(range(len(simulation.accepted)), key=lambda n: len(simulation.accepted[n]))
    entropy = simulation.record.texts[number].entropy[:LONGEST_SHOWN]
    refused = np.flatnonzero(~simulation.accepted[number][:LONGEST_SHOWN])
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9, 3), layout="constrained")
        axes = figure.subplots()
        axes.plot(entropy, "-", color=BLUE, linewidth=1)
        axes.plot(refused, entropy[refused], "o", color=ORANGE, markeredgecolor="black", label="refused")
        axes.set_xlabel("token of the text")
        axes.set_ylabel("entropy (nats)")
        axes.set_title(_pair(simulation))
        axes.legend()
        return figure


def lengths_along(simulation: Simulation) -> Figure:
    """Draw lengths of drafts, round by round, beside how many tokens of each are accepted."""
    policies = ["plus_minus", "static", simulation.calibrated()]
    every = {policy: simulation.rounds(policy) for policy in policies}
    number = max(range(len(simulation.accepted)), key=lambda n: len(simulation.accepted[n]))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9, 2.2 * len(policies)), layout="constrained")
        for axes, (policy, texts) in zip(figure.subplots(len(policies), 1, sharex=True), every.items()):
            rounds = np.array(texts[number] or [(0, 0)])
            at = np.arange(len(rounds))
            axes.bar(at, rounds[:, 0], width=0.85, color=ORANGE, hatch="///", label="refused")
            axes.bar(at, rounds[:, 1], width=0.85, color=BLUE, label="accepted")
            axes.set_ylabel("drafted tokens")
            axes.set_title(policy)
        axes.set_xlabel("round of the longest text")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper right", ncols=2)
        return figure


def surfaces(simulation: Simulation) -> Figure:
    """Draw what a token takes over the parameters of the thesis's three strategies."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(11, 3.4), layout="constrained")
        for axes, (policy, (first, second)) in zip(figure.subplots(1, len(SURFACES)), SURFACES.items()):
            found = search(simulation, f"{policy}:keep=1")
            if second is None:
                _draw_curve(axes, simulation, found, first)
            else:
                _draw_surface(figure, axes, found, first, second)
            axes.set_title(f"{policy}: {found.best.ms_per_token:.2f} ms/token")
        return figure


def _draw_curve(axes: Axes, simulation: Simulation, found: Found, key: str) -> None:
    values = [parameters[key] for parameters, _ in found.surface]
    axes.plot(values, [result.ms_per_token for _, result in found.surface], "o-", color=BLUE, markersize=3)
    for policy, dash in (("plus_minus", "--"), (ORACLE, ":")):
        axes.axhline(simulation.run(policy).ms_per_token, color=GRAY, linestyle=dash, label=policy)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(ScalarFormatter())
    axes.set_xlabel(key)
    axes.set_ylabel("ms per token")
    axes.legend()


def _draw_surface(figure: Figure, axes: Axes, found: Found, first: str, second: str) -> None:
    across, up = found.grid[first], found.grid[second]
    taken = {
        (parameters[first], parameters[second]): result.ms_per_token for parameters, result in found.surface
    }
    values = np.array([[taken[x, y] for x in across] for y in up])
    image = axes.imshow(values, origin="lower", aspect="auto", cmap="cividis_r", norm=LogNorm())
    row, column = np.unravel_index(values.argmin(), values.shape)
    axes.plot(column, row, "*", color="white", markeredgecolor="black", markersize=12)
    axes.set_xticks(range(len(across)), [f"{x:g}" for x in across], rotation=60)
    axes.set_yticks(range(len(up)), [f"{y:g}" for y in up])
    axes.set_xlabel(first)
    axes.set_ylabel(second)
    bar = figure.colorbar(image, ax=axes, label="ms per token")
    bar.ax.yaxis.set_major_formatter(ScalarFormatter())
    bar.ax.yaxis.set_minor_formatter(ScalarFormatter())


def _pair(simulation: Simulation) -> str:
    source = simulation.record.source
    return f"{source.draft} drafts for {source.target}"
