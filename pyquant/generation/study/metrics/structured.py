"""Structured output: whether what models generate has the form that was asked for, and is right."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from pyquant import limits
from pyquant.evaluate.significance import NORMAL_95, wilson
from pyquant.generation.structured.answers import count
from pyquant.generation.structured.measure import LENGTHS
from pyquant.generation.structured.outside import SUFFIX
from pyquant.generation.structured.series import Answers, measure_series
from pyquant.generation.structured.task import TECHNIQUES
from pyquant.generation.structured.tasks import TASKS, key_of, label_of, load_task
from pyquant.generation.study.report.structured import (
    MEANINGS,
    THESIS,
    findings,
    of_tasks,
    pooled,
    shares_against,
    tables_of_tasks,
)
from pyquant.study.items import Items
from pyquant.study.metric import Asked, Grid, Metric, Work
from pyquant.study.quantizer import Quantizer
from pyquant.study.results.columns import Column, Flat
from pyquant.study.results.figures import Drawing, figure
from pyquant.study.results.read import ModelResults, RowResults
from pyquant.study.study_text import StudyText
from pyquant.study.task import Measured, Progress, Task, of_count

BESIDE = (
    8  # a token of completions that are generated side by side takes about as long as so many of a prompt
)


def _known_technique(name: str) -> str:
    if name not in TECHNIQUES:
        raise ValueError(f"choices: {', '.join(map(repr, TECHNIQUES))}")
    return name


def _known_task(name: str) -> str:
    if name.endswith(SUFFIX):
        load_task(name)
    elif name not in TASKS:
        raise ValueError(f"choices: {', '.join(map(repr, TASKS))}, or a file 'FILE{SUFFIX}'")
    return name


def _apart(names: list[str]) -> list[str]:
    labels = [label_of(name) for name in names]
    if twice := {label for label in labels if labels.count(label) > 1}:
        raise ValueError(f"two are called {min(twice)!r}")
    return names


def _column(score: str, technique: str) -> str:
    return f"structured_{score}_{technique.replace(' ', '_')}"


class StructuredConfig(BaseModel):
    """Settings of what models are asked, and how."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tasks: Annotated[list[Annotated[str, AfterValidator(_known_task)]], AfterValidator(_apart)] = Field(
        ["arithmetic", "function_call"],
        min_length=1,
        description="bundled tasks, or Python files with tasks of one's own, which are run",
    )
    techniques: list[Annotated[str, AfterValidator(_known_technique)]] = Field(
        list(TECHNIQUES), min_length=1, description="how models are asked"
    )
    lengths: list[Annotated[int, limits.TOKENS.interval]] = Field(
        list(LENGTHS), min_length=1, description="tokens of a text, at most"
    )
    samples: Annotated[int, limits.SAMPLES.interval] = Field(
        100, description="completions of each task under each technique"
    )
    seed: Annotated[int, limits.SEED.interval] = Field(0, description="the same for all models")


class Structured(Metric):
    """Lets models answer the questions of tasks, and checks form and sense of what they write."""

    name = "structured"
    version = 3
    unit = "sample"
    by_default = False
    has_items = True
    settings = StructuredConfig
    title = "Structured output: form and sense"
    own_table = True
    note = (
        "Completions at temperature 1 and top-p 0.95, with the same random numbers for all models; p is "
        "McNemar's exact test against the unquantized model, pair by pair. Shares of all tasks at the "
        "greatest length."
    )
    columns = tuple(
        Column(_column(score, technique), f"{technique}: {score} (%)",
               f"share of completions under technique {technique} of which this holds: {meaning}", "percent",
               error=f"{_column(score, technique)}_error")
        for technique in TECHNIQUES
        for score, meaning in MEANINGS.items()
    )  # fmt: skip

    def inputs(self, asked: Asked, text: StudyText | None) -> dict[str, Any]:
        own: StructuredConfig = asked.settings[self.name]
        return {**own.model_dump(), "tasks": [key_of(name) for name in own.tasks]}

    def place(self, settings: dict[str, Any], folder: Path) -> None:
        tasks = settings.get("tasks")
        if isinstance(tasks, list):
            settings["tasks"] = [str(folder / name) if _is_file(name) else name for name in tasks]

    def inputs_of_samples(self, inputs: dict[str, Any]) -> dict[str, Any]:
        of_all = {"tasks", "techniques", "samples"}
        own = {key: value for key, value in inputs.items() if key not in of_all}
        return own | {"lengths": max(inputs["lengths"])}

    def work(self, asked: Asked, quantizer: Quantizer | None, text: StudyText | None) -> Work:
        own: StructuredConfig = asked.settings[self.name]
        n_completions = own.samples * len(own.tasks) * len(own.techniques)
        return Work(BESIDE * n_completions * max(own.lengths), own.model_dump())

    def run(self, task: Task, threads: int | None, progress: Progress) -> list[Measured]:
        (model,) = task.files
        assert task.finished is not None
        answers, costs, texts = measure_series(
            model,
            file=task.finished,
            threads=threads,
            progress=of_count(progress, "text"),
            **dict(task.options),
        )
        cells = [
            {"task": name, "technique": technique, "max_tokens": length, **count(of_cell, None)}
            for (name, technique, length), of_cell in answers.items()
        ]
        written = {"file": task.finished.name, "sha256": hashlib.sha256(texts).hexdigest()}
        took = [
            {"task": name, "technique": technique, "n": cost.n_completions, **cost.to_json()}
            for (name, technique), cost in costs.items()
        ]
        return [Measured({"cells": cells, "texts": written}, _items(answers), {"writing": took})]

    def cells(self, row: RowResults, text: int) -> Flat:
        flat: Flat = {}
        for technique in TECHNIQUES:
            for score in MEANINGS:
                hits, n = pooled(row, technique, score)
                low, high = wilson(hits, n) if n else (0.0, 0.0)
                key = _column(score, technique)
                flat[key] = hits / n if n else None
                flat[f"{key}_error"] = (high - low) / 2 / NORMAL_95 if n else None
        return flat

    def figures(self, model: ModelResults, text: int) -> list[Drawing]:
        panels = [shares_against(model, score) for score in MEANINGS]
        known = [panel for panel in panels if panel is not None]
        meanings = "; ".join(f"{score}: {meaning}" for score, meaning in MEANINGS.items())
        caption = (
            f"Share of completions of which it holds ({meanings}). Bars are Wilson's 95 % interval, "
            "dashed lines the unquantized model's shares."
        )
        return [Drawing(caption, figure(*known, height=3.6))] if known else []

    def findings(self, model: ModelResults, text: int) -> list[str]:
        return findings(model)

    def grids(self, model: ModelResults, text: int) -> list[Grid]:
        return [Grid(*table) for table in tables_of_tasks(model)]

    def remarks(self, model: ModelResults, text: int) -> list[str]:
        return [THESIS] if "arithmetic" in of_tasks(model) else []


def _items(answers: Answers) -> Items:
    rows = [(place, answer) for place, of_cell in answers.items() for answer in of_cell]
    places = ("task", "technique", "max_tokens")
    columns: Items = {name: np.array([place[i] for place, _ in rows]) for i, name in enumerate(places)}
    for name in ("sample", "cut_off", "n_tokens"):
        columns[name] = np.array([getattr(answer, name) for _, answer in rows])
    for name in MEANINGS:
        columns[name] = np.array([getattr(answer.verdict, name) for _, answer in rows])
    return columns


def _is_file(task: object) -> bool:
    return isinstance(task, str) and task.endswith(SUFFIX)
