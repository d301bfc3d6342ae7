"""What knowing the inputs buys: quantizers beside the same ones without compensation, by calibration."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from pyquant.study.report.results import ModelResults, RowResults

COMPENSATES = ("compensated", "sequential")  # how inputs may be known
BUDGET = 4.5  # bits per weight of the stock types that most people use


def compensation_rows(model: ModelResults, text: int) -> list[dict[str, Any]]:
    """A row for each compensated quantizer on a text, in the study's order.

    uncompensated_kld: of the same type by GGML with the same calibration's importance matrix, or of the
    same codes rounded one by one. best_kld: the least of stock types of at most BUDGET bits that are made
    with this importance matrix. Ratios are to these; their errors are as if both were independent, so
    too large, as they are measured on the same tokens. None where there is nothing to compare with.
    """
    rows = [row for row in model.rows if row.knows and _kld(row, text)]
    found = []
    for row in rows:
        if row.knows["how"] not in COMPENSATES:
            continue
        peers = [one for one in rows if one.knows["name"] == row.knows["name"] and one is not row]
        others = [one for one in peers if one.knows["how"] not in COMPENSATES]
        same = [one for one in others if one.alike == row.alike]
        stock = [one for one in others if _is_stock(one) and _bits(one) <= BUDGET]
        found.append(
            {
                "quantizer": f"{row.alike}{' in order' * (row.knows['how'] == 'sequential')}",
                "calibration": row.knows["name"],
                "bits": _bits(row) if row.size else None,
                **_measured("", row, text),
                **_measured("uncompensated_", _best(same, text), text),
                **_ratio("ratio", row, _best(same, text), text),
                "best": best.alike if (best := _best(stock, text)) else None,
                **_measured("best_", best, text),
                **_ratio("ratio_to_best", row, best, text),
            }
        )
    return found


def _is_stock(row: RowResults) -> bool:
    return (row.mode or "").startswith("ggml:")


def _bits(row: RowResults) -> float:
    bits = row.size["quantized_bits"] if row.size else None
    return math.inf if bits is None else bits


def _kld(row: RowResults, text: int) -> dict[str, float] | None:
    found = row.quality[text] if len(row.quality) > text else None
    return found.get("kld") if found else None


def _best(rows: Iterable[RowResults], text: int) -> RowResults | None:
    return min(rows, key=lambda row: _kld(row, text)["mean"], default=None)


def _measured(prefix: str, row: RowResults | None, text: int) -> dict[str, float | None]:
    kld = _kld(row, text) if row else None
    return {f"{prefix}kld": kld and kld["mean"], f"{prefix}kld_error": kld and kld["error"]}


def _ratio(name: str, row: RowResults, peer: RowResults | None, text: int) -> dict[str, float | None]:
    if peer is None:
        return {name: None, f"{name}_error": None}
    ours, theirs = _kld(row, text), _kld(peer, text)
    ratio = ours["mean"] / theirs["mean"]
    error = ratio * math.hypot(ours["error"] / ours["mean"], theirs["error"] / theirs["mean"])
    return {name: ratio, f"{name}_error": error}
