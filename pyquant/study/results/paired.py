"""Differences of KLD between quantizers on the same tokens: which of them can be told apart."""

from __future__ import annotations

from pyquant.evaluate.paired import paired_differences
from pyquant.study.items import Items
from pyquant.study.results.columns import Flat
from pyquant.study.results.read import ModelResults, Results, RowResults

Ranked = list[tuple[RowResults, Items]]


def ranked(model: ModelResults, text: int) -> Ranked:
    """List the rows with a KLD of each token, the nearest to the base first. Raises StudyError."""
    known = []
    for row in model.rows:
        measured = row.measurement("quality", text)
        if measured and "kld" in measured.result and (items := measured.items()):
            known.append((measured.result["kld"]["mean"], row, items))
    return [(row, items) for _, row, items in sorted(known, key=lambda one: one[0])]


def paired_rows(rows: Ranked) -> list[Flat]:
    """Compare each two rows: `quantizer` has no lower a KLD than `other`."""
    if not rows:
        return []
    last_first = rows[::-1]
    names = [row.label for row, _ in last_first]
    pairs = paired_differences(
        names, [items["kld"].astype(float) for _, items in last_first], rows[0][1]["chunk"]
    )
    return [
        {
            "quantizer": pair.model,
            "other": pair.other,
            "difference": pair.difference,
            "error": pair.error,
            "apart": int(pair.apart),
        }
        for pair in pairs
    ]


def paired_table(results: Results) -> list[Flat]:
    """List the differences of all pairs of quantizers, on all texts."""
    return [
        {"model": model.name, "text": name, **row}
        for model in results.models
        for text, name in enumerate(model.texts)
        for row in paired_rows(ranked(model, text))
    ]
