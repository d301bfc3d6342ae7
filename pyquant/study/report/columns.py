"""A study's results as flat tables: for reports, terminals, spreadsheets and databases."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyquant.study.report.comparison import compensation_rows
from pyquant.study.report.results import ModelResults, Results, RowResults, code_statistics
from pyquant.study.store import PREREQUISITES

Flat = dict[str, Any]


def results_table(results: Results) -> list[Flat]:
    """A row for each model, text and quantizer, unquantized included; None where nothing is known."""
    rows = []
    for model in results.models:
        for text in range(max(len(results.texts), 1)):
            rows += [flat(results, model, text, row) for row in model.rows]
    return rows


def codes_table(results: Results) -> list[Flat]:
    """A row for each code of each quantizer and type."""
    return [
        {**where, **{key: code[key] for key in ("code", "value", "count", "share")}}
        for where, total in _totals(results)
        for code in total["codes"]
    ]


def zero_runs_table(results: Results) -> list[Flat]:
    """A row for each length of zero runs of each quantizer and type."""
    return [
        {**where, "length": length, "count": count, "share": share, "geometric": geometric}
        for where, total in _totals(results)
        for length, count, share, geometric in zip(*total["zero_runs"].values())
    ]


def compensation_table(results: Results) -> list[Flat]:
    """A row for each compensated quantizer, beside what it is to be compared with."""
    return [
        {"model": model.name, "text": name, **row}
        for model in results.models
        for text, name in enumerate(model.texts)
        for row in compensation_rows(model, text)
    ]


TABLES = {
    "results": results_table,
    "codes": codes_table,
    "zero_runs": zero_runs_table,
    "compensation": compensation_table,
}


def _totals(results: Results) -> Iterator[tuple[Flat, dict[str, Any]]]:
    for model in results.models:
        for row in model.rows:
            for total in row.codes["totals"] if row.codes else ():
                yield {"model": model.name, "quantizer": row.label, "type": total["type"]}, total


def flat(results: Results, model: ModelResults, text: int, row: RowResults) -> Flat:
    """One row of `results_table`."""
    found = row.quality[text] if len(row.quality) > text else None
    there = results.texts[text] if len(results.texts) > text else {}
    counted = code_statistics(row) if row.codes else None
    return {
        "model": model.name,
        "model_sha256": model.sha256,
        "quantizer": row.label,
        "mode": row.mode,
        "text": there.get("name"),
        "text_sha256": there.get("sha256"),
        "n_ctx": _get(found, "n_ctx"),
        "n_chunks": _get(found, "n_chunks"),
        "n_tokens": _get(found, "n_tokens"),
        "bytes": _get(row.size, "bytes"),
        "bits_per_weight": _get(row.size, "bits_per_weight"),
        "file_bits": _get(row.size, "file_bits"),
        "quantized_bits": _get(row.size, "quantized_bits"),
        **_costs(results, row),
        "rmse": _get(row.size, "rmse"),
        "snr_db": _get(row.size, "snr_db"),
        "zero_weights": _get(row.size, "zero_share"),
        "n_codes": counted.n_codes if counted else None,
        "entropy": counted.entropy if counted else None,
        "zero_codes": counted.zero_share if counted else None,
        "single_zeros": counted.isolated_share if counted else None,
        "single_zeros_by_chance": 1 - counted.zero_share if counted else None,
        "perplexity": _get(found, "perplexity"),
        "perplexity_error": _get(found, "perplexity_error"),
        "ratio": _get(found, "ratio"),
        "ratio_error": _get(found, "ratio_error"),
        "kld": _get(found, "kld", "mean"),
        "kld_error": _get(found, "kld", "error"),
        "kld_median": _get(found, "kld", "percentiles", "50"),
        "kld_99": _get(found, "kld", "percentiles", "99"),
        "kld_99.9": _get(found, "kld", "percentiles", "99.9"),
        "kld_max": _get(found, "kld", "max"),
        "noise_kld": _get(found, "noise_floor", "kld"),
        "probability_change": _get(found, "probability_change", "mean"),
        "probability_change_rms": _get(found, "probability_change", "rms"),
        "same_top": _get(found, "same_top", "share"),
        "same_top_error": _get(found, "same_top", "error"),
        **_speed_columns(row.speed),
    }


def _costs(results: Results, row: RowResults) -> Flat:
    """What it took to make it, and before that what it is made with."""

    def about(key: str | None) -> Flat:
        return results.provenance.get(key, {}) if row.mode else {}

    before = [about(row.keys.get(kind)) for kind in PREREQUISITES]
    known = [one for one in before if one]
    made = about(row.keys.get("size"))
    return {
        "seconds": made.get("seconds"),
        "peak_memory": made.get("peak_memory"),
        "seconds_before": sum(one["seconds"] for one in known) if known else None,
        "peak_memory_before": max(one["peak_memory"] for one in known) if known else None,
    }


def _speed_columns(found: dict[str, Any] | None) -> Flat:
    names = {"": "tokens_per_second", "_low": "low", "_high": "high", "_ratio": "ratio"}
    return {
        f"{test}{suffix}": _get(found, test, name)
        for test in ("prompt", "generation")
        for suffix, name in names.items()
    }


def _get(found: dict[str, Any] | None, *path: str) -> Any:
    for key in path:
        if found is None:
            return None
        found = found.get(key)
    return found


@dataclass(frozen=True)
class Column:
    """A column for people. key: of `flat`; error: of its standard error, or of the ends of its range."""

    key: str
    head: str
    about: str
    style: str = "number"  # number, percent, bytes
    error: str | None = None
    ends: tuple[str, str] | None = None

    def text(self, row: Flat) -> str:
        """A cell: rounded to its error where it has one; a dash where nothing is known."""
        value = row[self.key]
        if value is None:
            return "-"
        if self.style == "bytes":
            return f"{value / 1e6:,.2f}"
        error = row[self.error] if self.error else None
        if error is not None:
            factor = 100 if self.style == "percent" else 1
            return plus_minus(factor * value, factor * error)
        if self.ends:
            low, high = (row[end] for end in self.ends)
            return f"{value:,.0f} ± {(high - low) / 2:,.0f}"
        return f"{100 * value:.2f}" if self.style == "percent" else f"{value:.3f}"


def known_columns(columns: Iterable[Column], rows: list[Flat]) -> list[Column]:
    """Those of which at least one row has something."""
    return [column for column in columns if any(row[column.key] is not None for row in rows)]


def plus_minus(value: float, error: float) -> str:
    """Both to the second digit of the error: 6.2317, 0.0123 -> '6.232 ± 0.012'."""
    if not error > 0:
        return f"{value:.4g} ± 0"
    digits = max(0, 1 - math.floor(math.log10(error)))
    if digits > 6 or abs(value) >= 1e6:
        return f"{value:.2e} ± {error:.1e}"
    return f"{value:,.{digits}f} ± {error:,.{digits}f}"


QUALITY = (
    Column("bytes", "size (MB)", "of the whole file", "bytes"),
    Column("quantized_bits", "bits", "per weight, of the tensors that were quantized, as stored"),
    Column("bits_per_weight", "bits, all tensors", "per weight, of all tensors, as stored"),
    Column("file_bits", "bits, file", "per weight, of the whole file"),
    Column("perplexity", "perplexity", "on the text, ± one standard error", error="perplexity_error"),
    Column("ratio", "ratio", "of the perplexity to the unquantized model's", error="ratio_error"),
    Column("kld", "divergence", "mean Kullback-Leibler divergence in nats", error="kld_error"),
    Column("kld_99.9", "divergence, 99.9 %", "the divergence that 99.9 % of tokens are below"),
    Column("same_top", "same top (%)", "tokens for which both models find the same one most likely",
           "percent", error="same_top_error"),
    Column("seconds", "made in (s)", "time to quantize the model, to find its step, to pack and hash it"),
    Column("peak_memory", "memory (MB)", "the most that took, Python's own about 150 MB included", "bytes"),
    Column("seconds_before", "calibrated in (s)", "time for its statistics, tables and sensitivities"),
    Column("peak_memory_before", "memory (MB)", "the most that took", "bytes"),
    Column("prompt", "prompt (tokens/s)", "of prompt processing: median of the rounds ± half their range",
           ends=("prompt_low", "prompt_high")),
    Column("generation", "generation (tokens/s)", "of generation: median of the rounds ± half their range",
           ends=("generation_low", "generation_high")),
)  # fmt: skip
CODES = (
    Column("snr_db", "signal to noise (dB)", "weights to the error of the weights"),
    Column("entropy", "entropy (bits)", "of the codes: no coder of single codes takes less"),
    Column("zero_codes", "zeros (%)", "share of codes that are zero", "percent"),
    Column("single_zeros", "single zeros (%)", "share of runs of zeros that have length 1", "percent"),
    Column("single_zeros_by_chance", "by chance (%)", "the same, if zeros came independently", "percent"),
)  # fmt: skip
COMPENSATION = (
    Column("uncompensated_kld", "not compensated", "the type as GGML makes it with the importance matrix of "
           "the same text, or the same codes rounded one by one", error="uncompensated_kld_error"),
    Column("kld", "compensated", "with the second moments of inputs", error="kld_error"),
    Column("ratio", "ratio", "of the two; its error is as if they were independent, so too large",
           error="ratio_error"),
    Column("ratio_to_best", "to best stock", "ratio to the divergence of the best stock type of at most "
           "4.5 bits per weight that is made with this importance matrix", error="ratio_to_best_error"),
)  # fmt: skip
