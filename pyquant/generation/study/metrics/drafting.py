"""Drafting: how often quantized models are accepted as drafts, and what that brings."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from pyquant import limits
from pyquant.files.text import Text
from pyquant.generation.speculative.measure.measure_pair import (
    Cell,
    Length,
    PairReport,
    PairSettings,
    measure_pair,
)
from pyquant.generation.speculative.record.prompts import SORTS
from pyquant.generation.speculative.write.pair import NGRAM
from pyquant.generation.study.report import drafting as report
from pyquant.generation.study.report.drafting_figures import drawings
from pyquant.generation.study.report.drafting_tables import tables
from pyquant.quantize.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from pyquant.study.items import Items
from pyquant.study.metric import Asked, Grid, Metric, Work
from pyquant.study.quantizer import Quantizer
from pyquant.study.results.columns import Flat
from pyquant.study.results.figures import Drawing
from pyquant.study.results.read import ModelResults, RowResults
from pyquant.study.store import Run
from pyquant.study.task import Measured, Progress, Task

ALONE = 2  # each token of a record is run over once, and some are drafted in earnest


def _known_sort(name: str) -> str:
    if name not in SORTS:
        raise ValueError(f"choices: {', '.join(map(repr, SORTS))}")
    return name


class TextsConfig(BaseModel):
    """Texts of a length."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt: Annotated[int, limits.TOKENS.interval] = Field(description="tokens of a prompt")
    new: Annotated[int, limits.TOKENS.interval] = Field(description="tokens behind it, at most")
    texts: Annotated[int, limits.SAMPLES.interval] = Field(description="prompts of each sort")


class DraftingConfig(BaseModel):
    """Settings of what is drafted, and for whom."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    targets: list[str] = Field(
        ["unquantized"], min_length=1, description="the model as it is, or in a stock type such as ggml:Q8_0"
    )
    sorts: list[Annotated[str, AfterValidator(_known_sort)]] = Field(
        list(SORTS), min_length=1, description="of prompts"
    )
    lengths: list[TextsConfig] = Field(
        [TextsConfig(prompt=25, new=100, texts=8)], min_length=1, description="of texts"
    )
    rounds: Annotated[int, limits.ROUNDS.interval] = Field(5, description="measurements of each cost")
    confirm: Annotated[int, limits.SAMPLES.interval] = Field(
        2, description="prompts of each sort that texts are drafted for in earnest"
    )
    turns: Annotated[int, limits.ROUNDS.interval] = Field(
        2, description="how often these are written with each policy"
    )


class Drafting(Metric):
    """Records what each quantized model would draft for the unquantized one, and replays policies on it."""

    name = "drafting"
    version = 9  # drafts take over what their targets have read
    unit = "sample"
    alone = True
    by_default = False
    has_items = True
    settings = DraftingConfig
    title = "Drafting: a quantized model writes ahead"
    own_table = True
    note = (
        "Greedy texts; the row unquantized has n-grams for a draft. Gains are times as fast as the target "
        "alone, by replays of policies with their best parameters on texts up to their first repetition, "
        "with costs that were measured here; the oracle is the least that any policy could take."
    )
    columns = report.COLUMNS

    def inputs(self, asked: Asked, text: Text | None) -> dict[str, Any]:
        return asked.settings[self.name].model_dump()

    def work(self, asked: Asked, quantizer: Quantizer | None, text: Text | None) -> Work:
        own: DraftingConfig = asked.settings[self.name]
        n_tokens = sum(its.texts * (its.prompt + its.new) for its in own.lengths)
        return Work(ALONE * len(own.targets) * len(own.sorts) * n_tokens, own.model_dump())

    def run(self, task: Task, threads: int | None, progress: Progress) -> list[Measured]:
        asked = DraftingConfig.model_validate(dict(task.options))
        assert task.finished is not None
        draft = NGRAM if task.modes == (None,) else task.files[0]
        lengths = [Length(its.prompt, its.new, its.texts) for its in asked.lengths]
        settings = PairSettings(asked.sorts, lengths, asked.rounds, asked.confirm, asked.turns)
        made: dict[str, PairReport] = {}
        took = []
        (run,) = task.runs
        assert run is not None
        every_draft = task.finished.with_stem(Run(self.name, run.inputs | {"quantizer": None}).key)
        for n, name in enumerate(asked.targets):
            work, of_target = (path.with_name(f"{path.stem}.{n}") for path in (task.finished, every_draft))
            target = task.model
            if name != "unquantized":
                target = work.with_name(f"{work.name}.target.gguf")
                if not target.exists():
                    quantize_model(task.model, target, make_mode({"mode": name}), threads=threads)
            made[name] = measure_pair(
                target, draft, settings, work=work, of_target=of_target, threads=threads,
                progress=_part(progress, n, len(asked.targets)),
            )  # fmt: skip
            took.append(_took(name, made[name]))
            if target != task.model:
                target.unlink()
        cells = [_counted(name, cell) for name, pair in made.items() for cell in pair.cells]
        return [Measured({"cells": cells}, _items(made), {"drafting": took})]

    def cells(self, row: RowResults, text: int) -> Flat:
        return report.flat(row)

    def figures(self, model: ModelResults, text: int) -> list[Drawing]:
        return drawings(model)

    def findings(self, model: ModelResults, text: int) -> list[str]:
        return report.findings(model)

    def grids(self, model: ModelResults, text: int) -> list[Grid]:
        return [Grid(*table) for table in tables(model)]


def _part(progress: Progress, n: int, of: int) -> Progress:
    """Tell the share of all parts by that of one of them."""
    return lambda share, what: progress((n + share) / of, what)


def _counted(target: str, cell: Cell) -> dict[str, Any]:
    fresh = cell.record.before_repetitions()
    length = cell.length
    return {
        "target": target,
        "sort": cell.sort,
        "prompt": length.prompt,
        "new": length.new,
        "texts": len(cell.record.texts),
        **{
            f"{which}_{name}": value
            for which, record in (("all", cell.record), ("fresh", fresh))
            for name, value in {
                "tokens": record.n_tokens,
                "drafted": record.n_drafted,
                "acceptance": record.acceptance,
                "entropy": record.mean("entropy"),
            }.items()
        },
    }


def _took(target: str, pair: PairReport) -> dict[str, Any]:
    costs = pair.costs.to_json()
    return {
        "target": target,
        "costs": {name: costs[name] for name in ("n_threads", "depth", "alone", "verify")}
        | {"draft": {key: value for key, value in costs["draft"].items() if key != "model"}},
        "best": {sort: [its.to_json() for its in best] for sort, best in pair.best.items()},
        "runs": pair.runs,
    }


def _items(made: dict[str, PairReport]) -> Items | None:
    texts = [
        (name, cell, text) for name, pair in made.items() for cell in pair.cells for text in cell.record.texts
    ]
    if not texts:
        return None
    sizes = [len(text) for *_, text in texts]
    facts = {
        "target": [name for name, *_ in texts],
        "sort": [cell.sort for _, cell, _ in texts],
        "prompt": [cell.length.prompt for _, cell, _ in texts],
        "new": [cell.length.new for _, cell, _ in texts],
        "text": [text.prompt for *_, text in texts],
        "ended": [text.ended for *_, text in texts],
    }
    items: Items = {name: np.repeat(np.array(values), sizes) for name, values in facts.items()}
    items["fresh"] = np.concatenate(
        [np.arange(len(text)) < (len(text) if text.fresh is None else text.fresh) for *_, text in texts]
    )
    for name in ("entropy", "top_p", "token_p", "accepted"):
        values = np.concatenate([getattr(text, name) for *_, text in texts])
        items[name] = values.astype(np.float32)
    return items
