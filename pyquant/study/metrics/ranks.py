"""Ranks: mean probability of the right token, by the rank that the unquantized model gives it."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyquant.evaluate.ranks import measure_ranks
from pyquant.study.metric import TextMetric
from pyquant.study.results.columns import Column, Flat, get
from pyquant.study.results.figures import Drawing, Points, figure, tall
from pyquant.study.results.read import ModelResults, RowResults
from pyquant.study.task import Measured, Progress, Task, of_count

# Name of each class of ranks, and its first and last rank.
CLASSES = {"1": (1, 1), "2-5": (2, 5), "6-20": (6, 20), "21+": (21, 2**31 - 1)}


class Ranks(TextMetric):
    """Runs models over a text, one after the other, and averages what they give the right token."""

    name = "ranks"
    version = 1
    has_items = True
    by_default = False
    title = "Probability of the right token, by its rank in the unquantized model"
    own_table = True
    columns = tuple(
        Column(f"right_{name}", f"rank {name} (%)", "mean probability of the right token where the "
               f"unquantized model ranks it {name}", "percent", error=f"right_{name}_error")
        for name in CLASSES
    )  # fmt: skip

    def run(self, task: Task, threads: int | None, progress: Progress) -> list[Measured]:
        base, *others = task.files
        assert task.text is not None
        ranked = measure_ranks(
            base, others, task.text, threads=threads, progress=of_count(progress), **dict(task.options)
        )
        classes = {name: _within(ranked.ranks, *ends) for name, ends in CLASSES.items()}
        return [
            Measured(
                {name: _mean(probability[within]) for name, within in classes.items()},
                {"rank": ranked.ranks, "probability": probability},
            )
            for probability in ranked.probabilities
        ]

    def cells(self, row: RowResults, text: int) -> Flat:
        cells = {}
        for name in CLASSES:
            cells[f"right_{name}"] = get(row.result("ranks", text), name, "mean")
            cells[f"right_{name}_error"] = get(row.result("ranks", text), name, "error")
        return cells

    def figures(self, model: ModelResults, text: int) -> list[Drawing]:
        rows = [(row, result) for row in model.rows if (result := row.result("ranks", text))]
        base = model.rows[0].result("ranks", text)
        known = [name for name in CLASSES if get(base, name, "mean")]
        if len(rows) < 2 or base is None or not known:
            return []
        ratios = {name: [result[name]["mean"] / base[name]["mean"] for _, result in rows] for name in known}
        first, *others = known
        panel = Points(
            labels=[row.label for row, _ in rows],
            values=ratios[first],
            errors=[0.0] * len(rows),
            reference=1.0,
            axis="mean probability, relative to the unquantized model",
            title="Probability of the right token",
            name=f"rank {first}",
            others={f"rank {name}": ratios[name] for name in others},
        )
        caption = (
            f"How much of the probability of the right token on {model.texts[text]} is left, by its rank in "
            "the unquantized model."
        )
        return [Drawing(caption, figure(panel, height=tall(len(rows)) + 0.4))]


def _within(ranks: np.ndarray, first: int, last: int) -> np.ndarray:
    return (ranks >= first) & (ranks <= last)


def _mean(probabilities: np.ndarray) -> dict[str, Any]:
    """The mean with its standard error; None where there are too few tokens."""
    n = len(probabilities)
    mean = float(probabilities.mean(dtype=np.float64)) if n else None
    error = float(probabilities.std(ddof=1, dtype=np.float64)) / n**0.5 if n > 1 else None
    return {"n_tokens": n, "mean": mean, "error": error}
