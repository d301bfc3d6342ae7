"""Structured output in reports: shares of all tasks, of each task, and against bits and divergence."""

from __future__ import annotations

from typing import Any, Literal

from matplotlib.axes import Axes

from pyquant.generation.structured.answers import SCORES, discordant
from pyquant.generation.structured.significance import mcnemar, wilson
from pyquant.generation.structured.task import TECHNIQUES
from pyquant.generation.study.report.writing import Table
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
    ("parses", "share of texts that have the form, with Wilson's 95 % interval"),
    ("evaluates", "share of texts that can be computed or carried out, with Wilson's 95 % interval"),
    ("right", "share of texts that are what was asked for, with Wilson's 95 % interval"),
    ("cut off", "share of texts that had not ended at the length"),
    ("p", "McNemar's exact test of right answers against the unquantized model, text by text"),
]
REMOVED = [
    ("token", "share of the model's probability that the grammar took away from a token, in the mean"),
    ("text", "one minus the probability that the model would have kept to the grammar along a text"),
]
Cell = dict[str, Any]
Hits = dict[tuple[str, int], bool]


def _cells(row: RowResults) -> list[Cell]:
    return get(row.result(METRIC), "cells") or []


def _longest(row: RowResults, technique: str) -> list[Cell]:
    cells = [cell for cell in _cells(row) if cell["technique"] == technique]
    longest = max((cell["max_tokens"] for cell in cells), default=0)
    return [cell for cell in cells if cell["max_tokens"] == longest]


def of_tasks(model: ModelResults) -> list[str]:
    """Return the tasks that were measured, in the study's order."""
    return list(dict.fromkeys(cell["task"] for row in model.rows for cell in _cells(row)))


def pooled(row: RowResults, technique: str, score: str) -> tuple[int, int]:
    """Return how many texts of all tasks have a score at the greatest length, and how many there are."""
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


def tables_of_tasks(model: ModelResults, tasks: list[str]) -> list[Table]:
    """Return a table for each task and length: title, techniques, heads, and a row for each quantizer."""
    base, tables = model.rows[0], []
    every = [cell for row in model.rows for cell in _cells(row)]
    techniques = [name for name in TECHNIQUES if any(cell["technique"] == name for cell in every)]
    for task in tasks:
        for length in sorted({cell["max_tokens"] for cell in every if cell["task"] == task}):
            rows = []
            for row in model.rows:
                by_technique = {
                    cell["technique"]: cell
                    for cell in _cells(row)
                    if (cell["task"], cell["max_tokens"]) == (task, length)
                }
                if by_technique:
                    texts: list[str] = []
                    for name in techniques:
                        p = p_value(row, base, name, task, length)
                        texts += _texts(by_technique[name], p)
                    rows.append((row.label, texts))
            tables.append((f"Task {task}, at most {length} tokens (%)", techniques, HEADS, rows))
    return tables


def _texts(cell: Cell, p: float | None) -> list[str]:
    shares = [cell["scores"][score] for score in SCORES]
    intervals = [
        f"{100 * share['share']:.0f} ({100 * share['low']:.0f}..{100 * share['high']:.0f})"
        for share in shares
    ]
    return [*intervals, f"{100 * cell['cut_off'] / cell['n']:.0f}", "-" if p is None else f"{p:.3f}"]


def tables_of_removed(model: ModelResults, tasks: list[str]) -> list[Table]:
    """Return a table for each task: the probability that grammars took away, at the greatest length."""
    used = [
        name
        for name in TECHNIQUES
        if any(cell["removed"] is not None for row in model.rows for cell in _longest(row, name))
    ]
    tables: list[Table] = []
    for task in tasks if used else []:
        rows = []
        for row in model.rows:
            cells = {name: cell for name in used for cell in _longest(row, name) if cell["task"] == task}
            if cells:
                both = [(name, key) for name in used for key in ("removed", "removed_text")]
                rows.append((row.label, [_percent(cells.get(name, {}).get(key)) for name, key in both]))
        tables.append((f"Task {task}: probability that the grammar took away (%)", used, REMOVED, rows))
    return tables


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def differences(model: ModelResults) -> list[str]:
    """Say of each technique which quantizers' texts have a score more or less often."""
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
                f"Technique {technique}, {score}: {100 * hits / n:.0f} % of {n} texts of the unquantized "
                f"model (95 %: {100 * low:.0f} to {100 * high:.0f}). Beyond chance (McNemar, p < {CERTAIN} "
                f"for all together) others differ: {', '.join(certain) or 'none'}."
            )
    return sentences


def with_interval(counts: list[tuple[int, int]]) -> tuple[list[float], list[list[float]]]:
    """Return hits of n as percentages, and how far Wilson's 95 % interval goes below and above each."""
    shares = [100 * hits / n for hits, n in counts]
    ends = [wilson(hits, n) for hits, n in counts]
    below = [share - 100 * low for share, (low, _) in zip(shares, ends)]
    above = [100 * high - share for share, (_, high) in zip(shares, ends)]
    return shares, [below, above]


def shares_against(model: ModelResults, score: str, of: Literal["bits", "divergence"]) -> Panel | None:
    """Return a panel of the share of texts that have a score, against bits or divergence; None without."""
    path = ("size", "bits") if of == "bits" else ("quality", "kld", "mean")
    rows = [
        (row, at)
        for row in model.rows[1:]
        if _cells(row) and (at := get(row.result(path[0]), *path[1:])) is not None
    ]
    if not rows:
        return None
    used = [name for name in TECHNIQUES if any(_longest(row, name) for row, _ in rows)]

    def draw(axes: Axes) -> None:
        for color, technique in zip((BLUE, *OTHERS), used):
            hits, n = pooled(model.rows[0], technique, score)
            if n:
                axes.axhline(100 * hits / n, color=color, linewidth=1, linestyle="--")
            known = [(at, *pooled(row, technique, score)) for row, at in rows]
            known = [point for point in known if point[2]]
            shares, errors = with_interval([(hits, n) for _, hits, n in known])
            axes.errorbar(
                [at for at, *_ in known], shares, yerr=errors, fmt="o", color=color, ecolor=color,
                capsize=2, markersize=4, label=plain(technique),
            )  # fmt: skip
        axes.set_ylabel(f"{score} (%)")
        axes.set_xlabel("bits per weight" if of == "bits" else "mean divergence (nats)", loc="right")
        axes.set_title("Against size" if of == "bits" else "Against divergence")
        scale_x(axes, [at for _, at in rows])
        axes.legend(fontsize=7, ncols=2, loc="upper left", bbox_to_anchor=(0, -0.16))

    return draw
