"""A study's results as flat tables: for reports, terminals, spreadsheets and databases."""

from __future__ import annotations

from collections.abc import Callable

from pyquant.study.metrics import MEASURABLE, Metric
from pyquant.study.results.columns import Flat
from pyquant.study.results.read import Measurement, ModelResults, Results, RowResults, understood

Table = Callable[[Results], list[Flat]]
ITEMS = "_items"  # after a metric's name: the table of its results per item


def flat(results: Results, model: ModelResults, text: int, row: RowResults) -> Flat:
    """Return one row of `results_table`: a model through a quantizer, on a text."""
    measured_on = results.texts[text] if len(results.texts) > text else {}
    cells: Flat = {
        "model": model.name,
        "model_sha256": model.sha256,
        "quantizer": row.label,
        "mode": row.mode,
        "text": measured_on.get("name"),
        "text_sha256": measured_on.get("sha256"),
        "cache_type_k": measured_on.get("cache_type_k"),
        "cache_type_v": measured_on.get("cache_type_v"),
    }
    for metric in MEASURABLE:
        cells |= metric.cells(row, text)
    return cells


def results_table(results: Results) -> list[Flat]:
    """List each model, text and quantizer, unquantized included; None where nothing is known.

    Raises StudyError: a result does not say what this version of pyquant writes.
    """
    with understood(results.folder):
        return [
            flat(results, model, text, row)
            for model in results.models
            for text in range(max(len(results.texts), 1))
            for row in model.rows
        ]


def items_table(results: Results, metric: str) -> list[Flat]:
    """List the results of a metric for every item: a token, say.

    Raises StudyError: a file of results is not what this version of pyquant writes.
    """
    with understood(results.folder):
        return [
            item
            for model in results.models
            for row in model.rows
            for text, measured in enumerate(row.measurements.get(metric, []))
            for item in _items_on(model, text, row, measured)
        ]


def _items_on(model: ModelResults, text: int, row: RowResults, measured: Measurement | None) -> list[Flat]:
    items = (measured.items() if measured else None) or {}
    name = model.texts[text] if len(model.texts) > text else None
    place: Flat = {"model": model.name, "quantizer": row.label, "text": name}
    columns = [array.tolist() for array in items.values()]
    return [{**place, "item": i, **dict(zip(items, values))} for i, values in enumerate(zip(*columns))]


def tables() -> dict[str, Table]:
    """Return what makes each table, by its name; tables of items, which are long, by `item_tables`."""
    return {"results": results_table} | {
        name: table for metric in MEASURABLE for name, table in metric.tables.items()
    }


def item_tables() -> dict[str, Table]:
    """Return what makes the tables of results per item, by their names."""

    def table(metric: Metric) -> Table:
        return lambda results: items_table(results, metric.name)

    return {f"{metric.name}{ITEMS}": table(metric) for metric in MEASURABLE if metric.has_items}
