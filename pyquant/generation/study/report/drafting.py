"""Speculative decoding in reports: acceptance rates and speed-ups, by the clock and by replays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from matplotlib.axes import Axes

from pyquant.generation.speculative.policies.costs import costs_from
from pyquant.generation.speculative.replay.replay import ORACLE
from pyquant.inspect.figures.style import BLUE, GRAY
from pyquant.study.metric import Grid
from pyquant.study.results.columns import get
from pyquant.study.results.figures import Drawing, figure
from pyquant.study.results.read import ModelResults, RowResults

METRIC = "drafting"
STRATEGIES = ("static", "moving_average", "cumulative")  # strategies of entropy drafting
HEURISTIC, EXPECTED = "plus_minus", "expected_value"
HEADS = [
    ("acceptance rate (%)", "share of the draft's most likely tokens that are the target's"),
    ("expected value", "speed-up of policy expected_value by the clock, with a 95 % interval"),
    ("strategy", "the same of the best of entropy drafting's three strategies"),
    ("heuristic", "the same of policy plus_minus"),
    ("predicted", "speed-up of expected_value on the record"),
    ("oracle", "speed-up if all acceptances were known: no policy has more"),
]
Took = dict[str, Any]


def parts_of(row: RowResults) -> dict[str, Took]:
    """Return what drafting took in a row, by target."""
    measured = row.measurement(METRIC)
    return {part["target"]: part for part in measured.provenance.get(METRIC, [])} if measured else {}


def gain(part: Took, which: str, policy: str, sort: str | None = None) -> float | None:
    """Return the gain of a policy, in `runs` or `replays`; in the harmonic mean of all sorts of prompts."""
    found = [
        row["ratio" if which == "runs" else "gain"]
        for name, its in part["sorts"].items()
        if sort in (None, name)
        for row in its[which]
        if row["policy"].partition(":")[0] == policy
    ]
    return len(found) / sum(1 / each for each in found) if found else None


def grids(model: ModelResults) -> list[Grid]:
    """Return the table of gains by sort of prompts: a row for each target and draft."""
    rows, sorts = [], []
    for row, target, part in _every(model):
        sorts = list(part["sorts"])
        cells = [text for sort in sorts for text in _texts(row, target, part, sort)]
        rows.append((f"{row.label} for {target}", cells))
    return [Grid("Drafts: times as fast as the target alone", sorts, HEADS, rows)] if rows else []


def _texts(row: RowResults, target: str, part: Took, sort: str) -> list[str]:
    accepted = next(cell["acceptance"] for cell in _cells(row, target) if cell["sort"] == sort)
    runs = {run["policy"].partition(":")[0]: run for run in part["sorts"][sort]["runs"]}
    by_clock = [
        next((runs[name] for name in names if name in runs), None)
        for names in ([EXPECTED], STRATEGIES, [HEURISTIC])
    ]
    return [
        "-" if accepted is None else f"{100 * accepted:.1f}",
        *(_ratio(run) if run else "-" for run in by_clock),
        *(f"{gain(part, 'replays', name, sort):.2f}" for name in (EXPECTED, ORACLE)),
    ]  # fmt: skip


def _ratio(run: dict[str, Any]) -> str:
    low, high = run["ratio_low"], run["ratio_high"]
    return f"{run['ratio']:.2f}" + ("" if low is None else f" ({low:.2f}..{high:.2f})")


def drawings(model: ModelResults) -> list[Drawing]:
    """Draw gains against what a draft token takes."""
    parts = [part for _, _, part in _every(model)]
    if not parts:
        return []

    def draw(axes: Axes) -> None:
        at = [_of_pass(part) for part in parts]
        axes.axhline(1, color=GRAY, linewidth=1, linestyle="--")
        for policy, which, mark, color, name in (
            (ORACLE, "replays", "^", GRAY, "oracle, replayed"),
            (EXPECTED, "runs", "o", BLUE, "expected_value, by the clock"),
        ):
            gains = [gain(part, which, policy) or 0 for part in parts]
            axes.plot(at, gains, mark, color=color, markersize=4, label=name)
        axes.set_xlabel("a draft token, in passes of one token", loc="right")
        axes.set_ylabel("times as fast as alone")
        axes.legend(fontsize=7)

    return [Drawing("Speed-up by the seconds of a draft token.", figure(draw, height=3.4))]


def _every(model: ModelResults) -> Iterator[tuple[RowResults, str, Took]]:
    for row in model.rows:
        for target, part in parts_of(row).items():
            yield row, target, part


def _cells(row: RowResults, target: str) -> list[dict[str, Any]]:
    return [cell for cell in get(row.result(METRIC), "cells") or [] if cell["target"] == target]


def _of_pass(part: Took) -> float:
    costs = costs_from(part["costs"])
    return costs.draft_next / costs.alone
