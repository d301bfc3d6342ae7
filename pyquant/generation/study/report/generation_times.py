"""What generating took, of a study that has metric structured: it stands in the provenance of runs."""

from __future__ import annotations

from typing import Any

from pyquant.study.results.read import RowResults

# Title, names of groups of columns, heads with definitions, and a row for each quantizer.
Table = tuple[str, list[str], list[tuple[str, str]], list[tuple[str, list[str]]]]


def took(row: RowResults, technique: str, task: str | None = None) -> dict[str, float] | None:
    """Return seconds and tokens of a completion of a technique, in the mean; None where they are not known.

    task: None for all tasks together. Tokens are those at the greatest length, with the one that ends a
    completion.
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
    seconds = [part["n"] * part["seconds_per_text"] for part in parts]
    tokens = sum(its * part["tokens_per_second"] for its, part in zip(seconds, parts))
    return {"seconds": sum(seconds) / n, "tokens": tokens / n}
