"""Show what knowing the inputs buys: quantizers beside the same ones without GPTQ, by calibration."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

from pyquant.study.results.columns import Column, Flat, get
from pyquant.study.results.read import ModelResults, Results, RowResults

# Ways in which inputs may be known, and what names of quantizers say of them.
BY_HESSIAN = {"gptq": "", "error_propagation": " with error propagation", "best": " by best"}
BUDGET = 4.5  # code bits of the stock types that most people use

COLUMNS = (
    Column("rtn_kld", "without GPTQ", "the type as GGML makes it with the importance matrix of "
           "the same text, or the same codes rounded one by one", error="rtn_kld_error"),
    Column("kld", "GPTQ", "with the Hessian statistics of inputs", error="kld_error"),
    Column("ratio", "ratio", "of the two; its error is as if they were independent, so too large",
           error="ratio_error"),
    Column("ratio_to_best", "to best stock", "ratio to the KLD of the best stock type of at most "
           "4.5 code bits that is made with this importance matrix", error="ratio_to_best_error"),
)  # fmt: skip


def gptq_table(results: Results) -> list[Flat]:
    """List every quantizer by GPTQ beside what it is to be compared with."""
    return [
        {"model": model.name, "text": name, **row}
        for model in results.models
        for text, name in enumerate(model.texts)
        for row in gptq_rows(model, text)
    ]


def gptq_rows(model: ModelResults, text: int) -> list[dict[str, Any]]:
    """Compare each quantizer by GPTQ with what the same calibration gives without it.

    Parameters
    ----------
    text
        Index of the text on which KLD was measured.

    Returns
    -------
    list of dict
        A row for each quantizer by GPTQ, in the study's order. `quantizer` has the settings of GPTQ too if
        they alone tell two of them apart. `rtn_kld` is of the same type by GGML with the same calibration's
        importance matrix, or of the same codes rounded one by one. `best_kld` is the least of the stock types
        of at most BUDGET code bits that are made with this importance matrix. Ratios are to these. Their
        errors are as if both were independent, so too large: both are measured on the same tokens. None where
        there is nothing to compare with, or a KLD is 0.
    """
    rows = [(row, row.knows) for row in model.rows if row.knows and _kld(row, text)]
    by_hessian = [(row, knows) for row, knows in rows if knows["how"] in BY_HESSIAN]
    places = Counter((_name(row, knows), knows["name"]) for row, knows in by_hessian)
    compared = []
    for row, knows in by_hessian:
        name = _name(row, knows)
        others = [
            peer
            for peer, theirs in rows
            if theirs["name"] == knows["name"] and theirs["how"] not in BY_HESSIAN
        ]
        same = [peer for peer in others if peer.alike == row.alike]
        stock = [peer for peer in others if _is_stock(peer) and _bits(peer) <= BUDGET]
        best = _best(stock, text)
        compared.append(
            {
                "quantizer": name if places[name, knows["name"]] == 1 else _with_settings(row, knows),
                "calibration": knows["name"],
                "code_bits": get(row.result("size"), "code_bits"),
                **_measured("", row, text),
                **_measured("rtn_", _best(same, text), text),
                **_ratio("ratio", row, _best(same, text), text),
                "best": best.alike if best else None,
                **_measured("best_", best, text),
                **_ratio("ratio_to_best", row, best, text),
            }
        )
    return compared


def _name(row: RowResults, knows: dict[str, str]) -> str:
    return row.alike + BY_HESSIAN[knows["how"]]


def _with_settings(row: RowResults, knows: dict[str, str]) -> str:
    label = row.label
    for key in ("hessian", "calibration"):
        label = label.replace(f" {key}={knows['name']}", "")
    return label


def _is_stock(row: RowResults) -> bool:
    return (row.mode or "").startswith("ggml:")


def _bits(row: RowResults) -> float:
    bits = get(row.result("size"), "code_bits")
    return math.inf if bits is None else bits


def _kld(row: RowResults, text: int) -> dict[str, float] | None:
    return get(row.result("quality", text), "kld")


def _best(rows: Iterable[RowResults], text: int) -> RowResults | None:
    return min(rows, key=lambda row: get(_kld(row, text), "mean"), default=None)


def _measured(prefix: str, row: RowResults | None, text: int) -> dict[str, float | None]:
    kld = _kld(row, text) if row else None
    return {f"{prefix}kld": get(kld, "mean"), f"{prefix}kld_error": get(kld, "error")}


def _ratio(name: str, row: RowResults, peer: RowResults | None, text: int) -> dict[str, float | None]:
    ours, theirs = _kld(row, text), _kld(peer, text) if peer else None
    if not (ours and theirs and ours["mean"] and theirs["mean"]):
        return {name: None, f"{name}_error": None}
    ratio = ours["mean"] / theirs["mean"]
    error = ratio * math.hypot(ours["error"] / ours["mean"], theirs["error"] / theirs["mean"])
    return {name: ratio, f"{name}_error": error}
