"""Draw drafting in reports: acceptance, gains, passes, runs, and the record of the best draft."""

from __future__ import annotations

from matplotlib.axes import Axes

from pyquant.generation.figures import entropy_along, entropy_histogram, lengths_along, surfaces
from pyquant.generation.speculative.replay.simulate import ORACLE
from pyquant.generation.study.report.drafting import (
    best_gain,
    best_row,
    costs_of,
    gain,
    parts_of,
    share,
    simulation_of,
    sorts_of,
    targets,
)
from pyquant.inspect.figures.style import BLUE, GRAY
from pyquant.study.results.columns import get
from pyquant.study.results.figures import OTHERS, Drawing, Panel, figure, plain, scale_x
from pyquant.study.results.read import ModelResults

COLORS = (BLUE, *OTHERS)


def drawings(model: ModelResults) -> list[Drawing]:
    """Draw all that is known of drafting."""
    drawn = []
    for target in targets(model):
        acceptance = [accepted_against(model, target, *of) for of in AGAINST]
        if known := [panel for panel in acceptance if panel is not None]:
            caption = f"Target {target}: the draft's most likely tokens that are the target's, by prompts."
            drawn.append(Drawing(caption, figure(*known, height=3.4)))
        if gains := [panel for panel in (gain_against_c(model, target), passes(model, target)) if panel]:
            caption = f"Target {target}: gains of replays, and seconds of a pass of the target over n tokens."
            drawn.append(Drawing(caption, figure(*gains, height=3.4)))
        if (runs := runs_beside(model, target)) is not None:
            caption = f"Target {target}: milliseconds per token by the clock, and of replays."
            drawn.append(Drawing(caption, figure(runs, height=3.4)))
    for target in targets(model)[:1]:
        row = best_row(model, target)
        simulation = simulation_of(model, row, target) if row else None
        if simulation is not None:
            drawn += [Drawing(caption, draw(simulation)) for draw, caption in OF_RECORD.items()]
    return drawn


OF_RECORD = {
    entropy_histogram: "Entropies of the draft's distributions, of accepted and of refused tokens.",
    entropy_along: "Entropies along the longest text, up to its first repetition.",
    lengths_along: "Lengths of drafts along the longest text, and how many of their tokens are accepted.",
    surfaces: "What a token takes by the parameters of entropy drafting's three strategies; the star is the "
    "best.",
}
AGAINST = [("bits per weight", ("size", "bits")), ("mean divergence (nats)", ("quality", "kld", "mean"))]


def accepted_against(model: ModelResults, target: str, axis: str, path: tuple[str, ...]) -> Panel | None:
    """Return a panel of acceptance against a number of the rows; None where either is not known."""
    sorts = sorts_of(model, target)
    rows = [
        (at, row)
        for row in model.rows[1:]
        if (at := get(row.result(path[0]), *path[1:])) is not None and share(row, "acceptance", target)
    ]
    if not rows:
        return None

    def draw(axes: Axes) -> None:
        for color, sort in zip(COLORS, sorts):
            points = [(at, share(row, "acceptance", target, sort)) for at, row in rows]
            known = [(at, 100 * its) for at, its in points if its is not None]
            axes.plot(*zip(*known), "o", color=color, markersize=4, label=sort)
        axes.set_ylabel("accepted (%)")
        axes.set_xlabel(axis, loc="right")
        scale_x(axes, [at for at, _ in rows])
        axes.legend(fontsize=7)

    return draw


def gain_against_c(model: ModelResults, target: str) -> Panel | None:
    """Return a panel of gains against what a draft token takes; None where nothing was replayed."""
    parts = [part for _, part in parts_of(model, target) if part["best"]]
    if not parts:
        return None

    def draw(axes: Axes) -> None:
        at = [costs_of(part).draft_next / costs_of(part).alone for part in parts]
        axes.axhline(1, color=GRAY, linewidth=1, linestyle="--")
        axes.plot(
            at, [gain(part, ORACLE) or 0 for part in parts], "^", color=GRAY, markersize=4, label="oracle"
        )
        axes.plot(
            at, [best_gain(part) or 0 for part in parts], "o", color=BLUE, markersize=4, label="best policy"
        )
        axes.set_xlabel("a draft token, in passes of one token", loc="right")
        axes.set_ylabel("times as fast as alone")
        axes.legend(fontsize=7)

    return draw


def passes(model: ModelResults, target: str) -> Panel | None:
    """Return a panel of T(n) over T(1), as every row measured it; None where none did."""
    every = [costs_of(part) for _, part in parts_of(model, target)]
    if not every:
        return None

    def draw(axes: Axes) -> None:
        for costs in every:
            n = range(1, len(costs.verify) + 1)
            axes.plot(n, [costs.of_pass(k) / costs.of_pass(1) for k in n], "-", color=BLUE, linewidth=0.7)
        axes.plot(n, n, ":", color=GRAY, label="as many passes of one token")
        axes.set_ylim(0, 1.1 * max(costs.verify[-1] / costs.verify[0] for costs in every))
        axes.set_xlabel("tokens of a pass, n", loc="right")
        axes.set_ylabel("T(n) / T(1)")
        axes.legend(fontsize=7)

    return draw


def runs_beside(model: ModelResults, target: str) -> Panel | None:
    """Return a panel of milliseconds per token by the clock and of replays; None without runs."""
    points = [
        (run["sort"], its["measured"], its["replayed"])
        for _, part in parts_of(model, target)
        for run in part["runs"]
        for its in run["foretold"]
        if its["replayed"] is not None
    ]
    if not points:
        return None

    def draw(axes: Axes) -> None:
        sorts = list(dict.fromkeys(sort for sort, *_ in points))
        for color, sort in zip(COLORS, sorts):
            known = [(clock, replay) for name, clock, replay in points if name == sort]
            axes.plot(*zip(*known), "o", color=color, markersize=4, label=plain(sort))
        ends = [bound(value for _, *both in points for value in both) for bound in (min, max)]
        axes.plot(ends, ends, ":", color=GRAY)
        axes.set_xlabel("ms/token by the clock", loc="right")
        axes.set_ylabel("ms/token, replayed")
        axes.legend(fontsize=7)

    return draw
