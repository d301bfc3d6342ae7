"""Show what writing texts took, of a study that has metric structured: times and memory, of provenance."""

from __future__ import annotations

from typing import Any

from pyquant.generation.structured.task import TECHNIQUES
from pyquant.study.results.read import ModelResults, RowResults

# Title, names of groups of columns, heads with definitions, and a row for each quantizer.
Table = tuple[str, list[str], list[tuple[str, str]], list[tuple[str, list[str]]]]
HEADS = [
    ("tokens", "tokens of a text, with the one that ended it"),
    ("s", "seconds for a text, by the clock, of texts that are written side by side"),
    ("model", "of these, forward passes"),
    ("masks", "making masks, mostly beside forward passes"),
    ("draws", "sampling"),
    ("MB", "peak of the process's memory, so far"),
]
PARTS = ("seconds_per_text", "forward_seconds", "mask_seconds", "sampling_seconds")


def took(row: RowResults, technique: str, task: str | None = None) -> dict[str, float] | None:
    """Return what a text of a technique took, in the mean; None where that is not known.

    task: None for all tasks together.

    Returns
    -------
    dict
        tokens; seconds, and of these forward, mask and sampling; peak_memory, in bytes.
    """
    measured = row.measurement("structured")
    parts: list[dict[str, Any]] = [
        part
        for part in (measured.provenance.get("writing", []) if measured else [])
        if part["technique"] == technique and task in (None, part["task"])
    ]
    if not parts:
        return None
    n = sum(part["n"] for part in parts)
    seconds, *others = (sum(part["n"] * part[name] for part in parts) / n for name in PARTS)
    tokens = sum(part["n"] * part["seconds_per_text"] * part["tokens_per_second"] for part in parts) / n
    return {
        "tokens": tokens,
        "seconds": seconds,
        **dict(zip(("forward", "mask", "sampling"), others)),
        "peak_memory": max(part["peak_memory"] for part in parts),
    }


def table_of_costs(model: ModelResults) -> Table | None:
    """Return a table of what texts took, by technique; None where nothing is known."""
    rows = [(row.label, {name: took(row, name) for name in TECHNIQUES}) for row in model.rows]
    used = [name for name in TECHNIQUES if any(costs[name] for _, costs in rows)]
    if not used:
        return None
    shown = [
        (label, [text for name in used for text in _texts(costs[name])])
        for label, costs in rows
        if any(costs.values())
    ]
    return "What a text took, over all tasks at the greatest length", used, HEADS, shown


def _texts(cost: dict[str, float] | None) -> list[str]:
    if cost is None:
        return ["-"] * len(HEADS)
    times = [f"{cost[name]:.3f}" for name in ("seconds", "forward", "mask", "sampling")]
    return [f"{cost['tokens']:.0f}", *times, f"{cost['peak_memory'] / 1e6:.0f}"]
