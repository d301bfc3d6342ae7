"""Tables of drafting in reports: gains, runs, lengths of texts, and a thesis's numbers beside ours."""

from __future__ import annotations

from typing import Any

from pyquant.generation.speculative.measure.measure_pair import STRATEGIES
from pyquant.generation.speculative.replay.simulate import NONE, ORACLE
from pyquant.generation.study.report.drafting import (
    EXPECTED,
    HEURISTIC,
    METRIC,
    Took,
    best_gain,
    best_row,
    gain,
    mean_of,
    parts_of,
    runs_in,
    share,
    sorts_of,
    targets,
    took,
)
from pyquant.generation.study.report.writing import Table
from pyquant.study.results.columns import get
from pyquant.study.results.read import ModelResults, RowResults

HEADS = [
    ("accepted (%)", "share of the draft's most likely tokens that are the target's"),
    ("heuristic", "gain of policy plus_minus"),
    ("strategy", "gain of the best of entropy drafting's three strategies"),
    ("expected value", "gain of policy expected_value"),
    ("best", "gain of the policy that gains most, and its parameters"),
    ("oracle", "gain if all acceptances were known: no policy gains more"),
]


def tables(model: ModelResults) -> list[Table]:
    """Return tables of gains by sort of prompts, of runs, and beside the thesis's."""
    made: list[Table] = []
    for target in targets(model):
        parts, sorts = parts_of(model, target), sorts_of(model, target)
        rows = [
            (row.label, [text for sort in sorts for text in _gains(row, part, target, sort)])
            for row, part in parts
        ]
        if rows:
            made.append((f"Drafts for the target {target}: gains of replays", sorts, HEADS, rows))
        if ran := _runs(parts):
            made.append((f"Drafts for the target {target}: runs in turns", [""], RUN_HEADS, ran))
    return [*made, *_lengths(model), *_thesis(model)]


def _gains(row: RowResults, part: Took, target: str, sort: str) -> list[str]:
    if sort not in part["best"]:
        return ["-"] * len(HEADS)
    policies = [its for its in part["best"][sort] if its["policy"] not in (NONE, ORACLE)]
    best = max(policies, key=lambda its: its["gain"])
    strategy = best_gain(part, sort, STRATEGIES)
    accepted = share(row, "acceptance", target, sort)
    return [
        "-" if accepted is None else f"{100 * accepted:.1f}",
        f"{gain(part, HEURISTIC, sort):.3f}",
        f"{strategy:.3f}",
        f"{gain(part, EXPECTED, sort):.3f}",
        f"{best['gain']:.3f} {best['policy']}",
        f"{gain(part, ORACLE, sort):.3f}",
    ]


RUN_HEADS = [
    ("texts", "sort of prompts"),
    ("policy", "rule that ends drafts, with its parameters"),
    (
        "times as fast",
        "as the target alone, by the clock, with a 95 % interval of texts",
    ),
    ("ms/token", "by the clock, behind the first round of each text"),
    ("by costs", "of the same rounds, and how far from the clock"),
    ("replayed", "on the record, and how far from the clock"),
]


def _runs(parts: list[tuple[RowResults, Took]]) -> list[tuple[str, list[str]]]:
    rows = []
    for row, part in parts:
        for sort, ran, its in runs_in(part):
            clock = its.get("measured")
            ratio = f"{ran['ratio']:.3f} ({ran['ratio_low']:.2f}..{ran['ratio_high']:.2f})"
            beside = [_beside(its.get(name), clock) for name in ("by_costs", "replayed")]
            milliseconds = f"{clock:.2f}" if clock else "-"
            rows.append((row.label, [sort, ran["policy"], ratio, milliseconds, *beside]))
    return rows


def _beside(foretold: float | None, measured: float | None) -> str:
    return f"{foretold:.2f} ({100 * (foretold / measured - 1):+.1f} %)" if foretold and measured else "-"


def _lengths(model: ModelResults) -> list[Table]:
    """Return a table of acceptance by length of texts, with repetitions and without."""
    cells = [(row, cell) for row in model.rows for cell in get(row.result(METRIC), "cells") or []]
    places = list(dict.fromkeys((cell["prompt"], cell["new"]) for _, cell in cells))
    if not places:
        return []
    heads = [
        ("all", "share of the draft's most likely tokens that are the target's (%), in whole texts"),
        ("fresh", "the same, up to each text's first repetition"),
        ("kept (%)", "share of tokens before first repetitions"),
    ]
    rows = []
    for target in targets(model):
        for row in model.rows:
            texts: list[str] = []
            for place in places:
                those = [
                    cell
                    for of, cell in cells
                    if of is row and cell["target"] == target and (cell["prompt"], cell["new"]) == place
                ]
                texts += _shares(those)
            if any(text != "-" for text in texts):
                rows.append((f"{row.label}, {target}", texts))
    groups = [f"{prompt} + {new} tokens" for prompt, new in places]
    return [("Accepted tokens by length of texts (%)", groups, heads, rows)]


def _shares(cells: list[dict[str, Any]]) -> list[str]:
    shares = [mean_of(cells, which, "acceptance") for which in ("all", "fresh")]
    n_all, n_fresh = (sum(cell[f"{which}_tokens"] for cell in cells) for which in ("all", "fresh"))
    texts = ["-" if its is None else f"{100 * its:.1f}" for its in shares]
    return [*texts, f"{100 * n_fresh / n_all:.0f}" if n_all else "-"]


# Kluser, bachelor's thesis, HSLU 2024: milliseconds per token with OPT-125M's drafts.
THESIS = {
    "OPT 2.7B, 25 + 25, thesis": (33.84, 24.85, 23.11, 24.02, 23.52),
    "OPT 6.7B, 25 + 25, thesis": (57.03, 31.56, 30.57, 32.58, 30.05),
    "OPT 2.7B, 25 + 100, thesis": (32.05, 21.70, 20.95, 21.73, 20.82),
    "OPT 2.7B, 100 + 1000, thesis": (33.27, 21.71, 20.63, 21.56, 20.74),
}


def _thesis(model: ModelResults) -> list[Table]:
    names = (NONE, HEURISTIC, *STRATEGIES, EXPECTED, ORACLE)
    heads = [(name.replace("_", " "), "milliseconds per token") for name in names]
    rows = []
    for target in targets(model):
        row = best_row(model, target)
        part = took(row, target) if row else None
        if row is None or part is None:
            continue
        for sort, best in part["best"].items():
            by_name = {its["policy"].partition(":")[0]: its["ms_per_token"] for its in best}
            times = [f"{by_name[name]:.2f}" for name in names]
            rows.append((f"{target} with {row.label}, {sort}", times))
    if not rows:
        return []
    theirs = [(name, [f"{value:.2f}" for value in values] + ["-", "-"]) for name, values in THESIS.items()]
    return [("Beside entropy drafting (Kluser, 2024): milliseconds per token", [""], heads, rows + theirs)]
