"""Quality: perplexity of a text, and KLD from the unquantized model, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import StudyError
from pyquant.evaluate.compare import compare_variants
from pyquant.evaluate.kld import Scores
from pyquant.study.items import Items
from pyquant.study.metric import Grid, TextMetric
from pyquant.study.results.columns import Column, Flat, get, plus_minus
from pyquant.study.results.comparison import COLUMNS as GPTQ
from pyquant.study.results.comparison import gptq_rows, gptq_table
from pyquant.study.results.figures import Drawing, Panel, Points, figure, tall
from pyquant.study.results.findings import best_at_each_size, not_usable
from pyquant.study.results.paired import paired_rows, paired_table, ranked
from pyquant.study.results.read import ModelResults, Result, RowResults
from pyquant.study.results.tradeoff import points, tradeoff
from pyquant.study.study_text import StudyText, read_named
from pyquant.study.task import Measured, Progress, Task, of_count

OF_MODEL = ("model", "file", "bits", "size", "dominated_by")  # its name and size, which are other metrics'
PAIRED = [
    ("bits", "per weight, of the whole file"),
    ("mean KLD", "mean Kullback-Leibler divergence in nats"),
    ("more than above", "mean KLD less that of the row above, on the same tokens; ± one standard error, "
     "of whole chunks"),
    ("told apart", "whether that is more than two standard errors"),
]  # fmt: skip
OF_ALL = ("n_ctx", "n_chunks", "n_tokens", "noise_floor")


class Quality(TextMetric):
    """Runs quantized models beside the unquantized one over a text."""

    name = "quality"
    version = 2
    has_items = True
    columns = (
        Column("perplexity", "perplexity", "on the text, ± one standard error", error="perplexity_error"),
        Column("ratio_change", "PPL ratio (%)", "how much higher the perplexity is than the unquantized "
               "model's", "percent", error="ratio_error"),
        Column("kld", "mean KLD", "mean Kullback-Leibler divergence in nats", error="kld_error"),
        Column("kld_99", "99 % KLD", "the KLD that 99 % of tokens are below", "digits"),
        Column("kld_99.9", "99.9 % KLD", "the KLD that 99.9 % of tokens are below", "digits"),
        Column("kld_max", "max KLD", "the largest KLD of a token", "digits"),
        Column("same_top", "same top (%)", "tokens for which both models find the same token most likely",
               "percent", error="same_top_error"),
        Column("expected_acceptance", "expected acceptance (%)", "tokens that speculative sampling "
               "accepts if the model drafts for the unquantized one", "percent", lesser=True,
               error="expected_acceptance_error"),
    )  # fmt: skip
    tables = MappingProxyType({"gptq": gptq_table, "paired": paired_table})

    def takes(self, text: StudyText) -> bool:
        return True

    def run(self, task: Task, threads: int | None, progress: Progress) -> list[Measured]:
        base, *others = task.files
        assert task.text is not None
        (comparison,) = compare_variants(
            base,
            list(zip(others, task.caches[1:])),
            [read_named(task.text, task.text.name, task.kind)],
            threads=threads,
            progress=of_count(progress),
            **dict(task.options),
        )
        report = comparison.to_json()
        of_all = {key: report[key] for key in OF_ALL}
        of_each = [report["base"], *report["candidates"]]
        return [
            Measured(
                {**of_all, **{key: own[key] for key in own if key not in OF_MODEL}},
                _items(per_token, comparison.chunks),
            )
            for own, per_token in zip(of_each, comparison.scores)
        ]

    def cells(self, row: RowResults, text: int) -> Flat:
        result = row.result("quality", text)
        return {
            **{name: get(result, name) for name in ("n_ctx", "n_chunks", "n_tokens")},
            **{
                name: get(result, name) for name in ("perplexity", "perplexity_error", "ratio", "ratio_error")
            },
            "ratio_change": result["ratio"] - 1 if result and "ratio" in result else None,
            "kld": get(result, "kld", "mean"),
            "kld_error": get(result, "kld", "error"),
            "kld_median": get(result, "kld", "percentiles", "50"),
            "kld_99": get(result, "kld", "percentiles", "99"),
            "kld_99.9": get(result, "kld", "percentiles", "99.9"),
            "kld_max": get(result, "kld", "max"),
            "noise_kld": get(result, "noise_floor", "kld"),
            "probability_change": get(result, "probability_change", "mean"),
            "probability_change_rms": get(result, "probability_change", "rms"),
            "same_top": get(result, "same_top", "share"),
            "same_top_error": get(result, "same_top", "error"),
            "expected_acceptance": get(result, "expected_acceptance", "share"),
            "expected_acceptance_error": get(result, "expected_acceptance", "error"),
        }

    def remarks(self, model: ModelResults, text: int) -> list[str]:
        floors = [
            result["noise_floor"]["kld"] for row in model.rows if (result := row.result("quality", text))
        ]
        if not floors:
            return []
        return [
            f"KLDs of {floors[0]:.1e} nats and less mean nothing here: that is how far the "
            "unquantized model is from itself when it is computed in other portions."
        ]

    def findings(self, model: ModelResults, text: int) -> list[str]:
        return [*best_at_each_size(model, text), *not_usable(model, text)]

    def first_figures(self, model: ModelResults, text: int) -> list[Drawing]:
        if not points(model, text):
            return []
        caption = (
            f"KLD on {model.texts[text]} for size: lower and more to the left is better. The dotted line "
            "falls as squared error does with finer steps."
        )
        return [Drawing(caption, figure(tradeoff(model, text), height=5.5))]

    def first_grids(self, model: ModelResults, text: int) -> list[Grid]:
        rows = ranked(model, text)
        if len(rows) < 2:
            return []
        pairs = [None, *(paired_rows([above, below])[0] for above, below in pairwise(rows))]
        cells = []
        for (row, _), pair in zip(rows, pairs):
            bits = get(row.result("size"), "bits")
            own = self.cells(row, text)
            cells.append(
                (
                    row.label,
                    [
                        "-" if bits is None else f"{bits:.2f}",
                        plus_minus(own["kld"], own["kld_error"]),
                        plus_minus(pair["difference"], pair["error"]) if pair else "-",
                        ("yes" if pair["apart"] else "no") if pair else "-",
                    ],
                )
            )
        return [
            Grid(
                title=f"Paired differences on {model.texts[text]}",
                groups=["the nearest to the base first"],
                heads=PAIRED,
                rows=cells,
            )
        ]

    def figures(self, model: ModelResults, text: int) -> list[Drawing]:
        if not any(row.mode and row.result("quality", text) for row in model.rows):
            return []
        name, height = model.texts[text], tall(len(model.rows))
        return [
            Drawing(f"Perplexity on {name}; the dashed line is the unquantized model's.",
                    figure(perplexities(model, text), height=height)),
            Drawing(f"Mean KLD from the unquantized model on {name}.",
                    figure(klds(model, text), height=height)),
        ]  # fmt: skip

    def grids(self, model: ModelResults, text: int) -> list[Grid]:
        rows = gptq_rows(model, text)
        if not rows:
            return []
        by_place = {(row["quantizer"], row["calibration"]): row for row in rows}
        calibrations = list(dict.fromkeys(row["calibration"] for row in rows))

        def cells(quantizer: str) -> list[str]:
            places = [by_place.get((quantizer, calibration)) for calibration in calibrations]
            return [column.text(row) if row else "-" for row in places for column in GPTQ]

        return [
            Grid(
                title=f"What GPTQ buys on {model.texts[text]}: mean KLD",
                groups=[f"calibration {calibration}" for calibration in calibrations],
                heads=[(column.head, column.meaning) for column in GPTQ],
                rows=[(name, cells(name)) for name in dict.fromkeys(row["quantizer"] for row in rows)],
            )
        ]


def _items(scores: Scores, chunks: NDArray[np.intp]) -> Items:
    nll, kld = scores.nll.astype(np.float32), scores.kld.astype(np.float32)
    return {"nll": nll, "kld": kld, "chunk": chunks.astype(np.int32)}


def perplexities(model: ModelResults, text: int, labels: Sequence[str] | None = None) -> Panel:
    """Return a panel of the perplexity on a text with its standard error.

    text: index of the text.
    labels: of the quantizers to show; all, if None.
    Raises StudyError: quality was not measured.
    """
    rows = _measured(model, text, labels)
    return Points(
        labels=[row.label for row, _ in rows],
        values=[result["perplexity"] for _, result in rows],
        errors=[result["perplexity_error"] for _, result in rows],
        reference=get(model.rows[0].result("quality", text), "perplexity"),
        axis=f"perplexity on {model.texts[text]} (± one standard error)",
        title="Perplexity",
    )


def klds(model: ModelResults, text: int, labels: Sequence[str] | None = None) -> Panel:
    """Return a panel of the mean KLD from the unquantized model; as `perplexities`."""
    rows = [(row, result) for row, result in _measured(model, text, labels) if "kld" in result]
    return Points(
        labels=[row.label for row, _ in rows],
        values=[result["kld"]["mean"] for _, result in rows],
        errors=[result["kld"]["error"] for _, result in rows],
        reference=None,
        axis="mean KLD (nats, ± one standard error)",
        title="KLD from the unquantized model",
    )


def _measured(
    model: ModelResults, text: int, labels: Sequence[str] | None
) -> list[tuple[RowResults, Result]]:
    rows = model.rows if labels is None else [model.row(label) for label in labels]
    known = [(row, result) for row in rows if (result := row.result("quality", text))]
    if not known:
        raise StudyError(f"no quality of {model.name} in the study; `pyquant study run` measures it")
    return known
