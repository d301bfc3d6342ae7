"""Structured output in reports: a table of each task, shares of all tasks in a figure, and what differs."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

from pyquant.evaluate.significance import mcnemar, wilson
from pyquant.generation.structured.answers import SCORES, discordant
from pyquant.generation.structured.cost import slowdown
from pyquant.generation.structured.task import TECHNIQUES
from pyquant.generation.study.report.generation_times import Table, took
from pyquant.inspect.figures.style import BLUE
from pyquant.study.results.columns import get
from pyquant.study.results.figures import OTHERS, Panel, plain, scale_x
from pyquant.study.results.read import ModelResults, RowResults

METRIC = "structured"
MEANINGS = {
    "parses": "it has the form",
    "evaluates": "it can be computed or carried out",
    "right": "it is what was asked for",
}
CERTAIN = 0.05  # of McNemar's test, divided by the number of tests
HEADS = [
    ("parses", "share of completions that have the form, with Wilson's 95 % interval"),
    ("evaluates", "share of completions that can be computed or carried out, with Wilson's 95 % interval"),
    ("right", "share of completions that are what was asked for, with Wilson's 95 % interval"),
    ("cut off", "share of completions that had not ended at the length"),
    ("p", "McNemar's exact test of right answers against the unquantized model, completion by completion"),
    ("removed", "share of the model's probability that the grammar took away from a token, in the mean"),
    ("removed/completion", "one minus the probability that the model would have kept to the grammar"),
    ("s", "seconds for a completion at the greatest length, by the clock, of those generated side by side"),
]
THESIS = (
    "Task arithmetic in a master's thesis (A. García Casasola, 2025; one product, 100 completions, vLLM with "
    "Outlines on GPUs), at 50, 100 and 200 tokens: under a grammar 86, 96 and 98 % of Llama 3 8B's in "
    "F16 parsed, and 84, 99 and 100 % of those of 70B in 8 bits; with few shots 55, 82 and 95 %, and 37, "
    "86 and 100 %. Completions took 79 to 114 times (8B) and 2.2 to 4.1 times (70B) as long as without a "
    "grammar."
)
Cell = dict[str, Any]
Hits = dict[tuple[str, int], bool]


def _cells(row: RowResults, technique: str | None = None) -> list[Cell]:
    cells: list[Cell] = get(row.result(METRIC), "cells") or []
    return [cell for cell in cells if technique in (None, cell["technique"])]


def _longest(row: RowResults, technique: str) -> list[Cell]:
    cells = _cells(row, technique)
    return [cell for cell in cells if cell["max_tokens"] == max(of["max_tokens"] for of in cells)]


def _techniques(model: ModelResults) -> list[str]:
    return [name for name in TECHNIQUES if any(_cells(row, name) for row in model.rows)]


def of_tasks(model: ModelResults) -> list[str]:
    """Return the tasks that were measured, in the study's order."""
    return list(dict.fromkeys(cell["task"] for row in model.rows for cell in _cells(row)))


def pooled(row: RowResults, technique: str, score: str) -> tuple[int, int]:
    """Return how many completions have a score at the greatest length, and how many there are."""
    cells = _longest(row, technique)
    return sum(cell["scores"][score]["n"] for cell in cells), sum(cell["n"] for cell in cells)


def p_value(
    row: RowResults, base: RowResults, technique: str, task: str | None, length: int, score: str = "right"
) -> float | None:
    """Test a score's answers against the unquantized model's; None where one of both is not there.

    task: None for all tasks together.
    """
    ours, theirs = (_hits(of, technique, task, length, score) for of in (row, base))
    both = sorted(ours.keys() & theirs.keys())
    if row is base or not both:
        return None
    return mcnemar(*discordant([ours[key] for key in both], [theirs[key] for key in both]))


def _hits(row: RowResults, technique: str, task: str | None, length: int, score: str) -> Hits:
    measured = row.measurement(METRIC)
    items = measured.items() if measured else None
    if items is None:
        return {}
    columns = [items[name].tolist() for name in ("task", "technique", "max_tokens", "sample", score)]
    return {
        (name, sample): hit
        for name, way, tokens, sample, hit in zip(*columns)
        if way == technique and tokens == length and task in (None, name)
    }


def tables_of_tasks(model: ModelResults) -> list[Table]:
    """Return a table for each task and length: title, techniques, heads, and a row for each quantizer."""
    techniques, tables = _techniques(model), []
    every = [cell for row in model.rows for cell in _cells(row)]
    for task in of_tasks(model):
        for length in sorted({cell["max_tokens"] for cell in every if cell["task"] == task}):
            rows = []
            for row in model.rows:
                cells = {
                    cell["technique"]: cell
                    for cell in _cells(row)
                    if (cell["task"], cell["max_tokens"]) == (task, length)
                }
                if cells:
                    texts = [text for name in techniques for text in _texts(model, row, cells[name])]
                    rows.append((row.label, texts))
            tables.append((f"Task {task}, at most {length} tokens (%)", techniques, HEADS, rows))
    return tables


def _texts(model: ModelResults, row: RowResults, cell: Cell) -> list[str]:
    task, technique = cell["task"], cell["technique"]
    shares = [cell["scores"][score] for score in SCORES]
    intervals = [
        f"{100 * share['share']:.0f} ({100 * share['low']:.0f}..{100 * share['high']:.0f})"
        for share in shares
    ]
    p = p_value(row, model.rows[0], technique, task, cell["max_tokens"])
    removed = ["-" if cell[key] is None else f"{100 * cell[key]:.1f}" for key in ("removed", "removed_text")]
    cost = took(row, technique, task)
    return [
        *intervals,
        f"{100 * cell['cut_off'] / cell['n']:.0f}",
        "-" if p is None else f"{p:.3f}",
        *removed,
        f"{cost['seconds']:.3g}" if cost else "-",
    ]


def findings(model: ModelResults) -> list[str]:
    """Say which quantizers' completions have a score more or less often, and what a grammar costs."""
    base, sentences = model.rows[0], []
    for technique in TECHNIQUES:
        others = [row for row in model.rows[1:] if pooled(row, technique, "right")[1]]
        if not pooled(base, technique, "right")[1] or not others:
            continue
        length = _longest(base, technique)[0]["max_tokens"]
        for score in MEANINGS:
            hits, n = pooled(base, technique, score)
            low, high = wilson(hits, n)
            certain = []
            for row in others:
                p = p_value(row, base, technique, None, length, score)
                if p is not None and p < CERTAIN / len(others):
                    certain.append(f"{row.label} ({100 * pooled(row, technique, score)[0] / n:.0f} %)")
            sentences.append(
                f"Technique {technique}, {score}: {100 * hits / n:.0f} % of {n} completions of the "
                f"unquantized model (95 %: {100 * low:.0f} to {100 * high:.0f}). Beyond chance (McNemar, "
                f"p < {CERTAIN} for all together) others differ: {', '.join(certain) or 'none'}."
            )
    costs = {name: took(base, name) for name in ("free", "grammar")}
    times = slowdown({name: cost["tokens"] / cost["seconds"] for name, cost in costs.items() if cost})
    if times is not None:
        sentences.append(f"A token under the grammar takes {times:.2f} times as long as one without.")
    return sentences


def shares_against(model: ModelResults, score: str) -> Panel | None:
    """Return a panel of the share of completions that have a score, against KLD, or bits; None without."""
    axis, path = "mean KLD (nats)", ["quality", "kld", "mean"]
    if not any(get(row.result(path[0]), *path[1:]) for row in model.rows[1:]):
        axis, path = "bits per weight", ["size", "bits"]
    every = [(row, get(row.result(path[0]), *path[1:])) for row in model.rows[1:] if _cells(row)]
    rows = [(row, at) for row, at in every if at is not None]
    if not rows:
        return None

    def draw(axes: Axes) -> None:
        for color, technique in zip((BLUE, *OTHERS), _techniques(model)):
            hits, n = pooled(model.rows[0], technique, score)
            if n:
                axes.axhline(100 * hits / n, color=color, linewidth=1, linestyle="--")
            known = [(at, *pooled(row, technique, score)) for row, at in rows if _cells(row, technique)]
            shares = [100 * hits / n for _, hits, n in known]
            ends = [wilson(hits, n) for _, hits, n in known]
            below = [share - 100 * low for share, (low, _) in zip(shares, ends)]
            above = [100 * high - share for share, (_, high) in zip(shares, ends)]
            axes.errorbar(
                [at for at, *_ in known], shares, yerr=[below, above], fmt="o", color=color, ecolor=color,
                capsize=2, markersize=4, label=plain(technique),
            )  # fmt: skip
        axes.set_ylabel(f"{score} (%)")
        axes.set_xlabel(axis, loc="right")
        scale_x(axes, [at for _, at in rows])
        axes.legend(fontsize=7, ncols=2, loc="upper left", bbox_to_anchor=(0, -0.16))

    return draw
