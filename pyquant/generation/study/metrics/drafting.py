"""Speculative decoding: acceptance rates of quantized models as drafts, and the speed-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from pyquant import limits
from pyquant.generation.sampling.prompt import Prompt
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.speculative.decoding.pair import NGRAM, open_pair
from pyquant.generation.speculative.measure.measure_costs import measure_costs
from pyquant.generation.speculative.measure.run import run_policies
from pyquant.generation.speculative.policies import FAMILIES
from pyquant.generation.speculative.policies.costs import costs_from
from pyquant.generation.speculative.replay.record import make_record
from pyquant.generation.speculative.replay.replay import NONE, ORACLE, Replay
from pyquant.generation.speculative.replay.search import search
from pyquant.generation.study.prompts import Sort, make_prompts
from pyquant.generation.study.report import drafting as report
from pyquant.generation.study.report.drafting import EXPECTED, HEURISTIC, STRATEGIES
from pyquant.models.model_file import ModelFile
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from pyquant.study.metric import Asked, Grid, Metric, Work
from pyquant.study.quantizer import Quantizer
from pyquant.study.results.figures import Drawing
from pyquant.study.results.read import ModelResults
from pyquant.study.study_text import StudyText
from pyquant.study.task import Measured, Progress, Task

PASSES = 3  # each completion is recorded, and some are drafted in earnest


class DraftingConfig(BaseModel):
    """Settings of what is drafted, and for whom."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    targets: list[str] = Field(
        ["unquantized"], min_length=1, description="the model as it is, or in a stock type such as ggml:Q8_0"
    )
    sorts: list[Sort] = Field(["code", "prose", "chat"], min_length=1, description="of prompts")
    prompt: Annotated[int, limits.TOKENS.interval] = Field(25, description="tokens of a prompt")
    new: Annotated[int, limits.TOKENS.interval] = Field(100, description="tokens behind it, at most")
    texts: Annotated[int, limits.SAMPLES.interval] = Field(8, description="prompts of each sort")
    rounds: Annotated[int, limits.ROUNDS.interval] = Field(5, description="measurements of each cost")
    confirm: Annotated[int, limits.SAMPLES.interval] = Field(
        2, description="prompts of each sort that are generated from in earnest"
    )
    turns: Annotated[int, limits.ROUNDS.interval] = Field(
        2, description="how often these are written with each policy"
    )


class Drafting(Metric):
    """Records what each quantized model would draft, replays policies on it, and generates with the best."""

    name = "drafting"
    version = 10  # completions of one length, whole; records are made token by token
    unit = "sample"
    alone = True
    by_default = False
    settings = DraftingConfig
    title = "Speculative decoding: a quantized model as the draft model"
    note = (
        "Greedy; the row unquantized has n-grams for a draft. Speed-ups are times as fast as the target "
        "alone, by the clock, or by replays on records with costs that were measured here; the oracle is the "
        "least that any policy could take."
    )

    def inputs(self, asked: Asked, text: StudyText | None) -> dict[str, Any]:
        return asked.settings[self.name].model_dump()

    def work(self, asked: Asked, quantizer: Quantizer | None, text: StudyText | None) -> Work:
        own: DraftingConfig = asked.settings[self.name]
        n_tokens = own.texts * (own.prompt + own.new)
        return Work(PASSES * len(own.targets) * len(own.sorts) * n_tokens, own.model_dump())

    def run(self, task: Task, threads: int | None, progress: Progress) -> list[Measured]:
        asked = DraftingConfig.model_validate(dict(task.options))
        sorts = {sort: make_prompts(task.model, sort, asked.texts, asked.prompt) for sort in asked.sorts}
        draft = NGRAM if task.modes == (None,) else task.files[0]
        assert task.finished is not None
        cells, took = [], []
        for n, name in enumerate(asked.targets):
            target = task.model
            if name != "unquantized":
                target = task.finished.with_name(f"{task.finished.stem}.target.gguf")
                quantize_model(task.model, target, make_mode({"mode": name}), threads=threads, force=True)
            part = _part(progress, n, len(asked.targets))
            counted, of_pair = _measure(*open_pair(target, draft), sorts, asked, threads, part)
            cells += [{"target": name, **cell} for cell in counted]
            took.append({"target": name, **of_pair})
            if target != task.model:
                target.unlink()
        return [Measured({"cells": cells}, None, {"drafting": took})]

    def figures(self, model: ModelResults, text: int) -> list[Drawing]:
        return report.drawings(model)

    def grids(self, model: ModelResults, text: int) -> list[Grid]:
        return report.grids(model)


def _part(progress: Progress, n: int, of: int) -> Progress:
    """Tell the share of all parts by that of one of them."""
    return lambda share, what: progress((n + share) / of, what)


def _measure(
    target: ModelFile,
    draft: ModelFile | str,
    sorts: Mapping[Sort, Sequence[Prompt]],
    asked: DraftingConfig,
    threads: int | None,
    progress: Progress,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Measure a pair, and with prompts of each sort record, replay and run policies.

    Returns cells, which are the same on every machine, and costs, replays and runs, which are not. Runs are
    of no draft, Transformers' heuristic, the best strategy of entropy drafting, and the expected value.
    """
    progress(0, "costs")
    measured = measure_costs(target, draft, rounds=asked.rounds, threads=threads)
    costs, cells, took = costs_from(measured), [], {}
    given: dict[str, Any] = {"sampling": Sampling(temperature=0), "max_tokens": asked.new, "threads": threads}
    for n, (sort, prompts) in enumerate(sorts.items()):
        progress((n + 0.2) / len(sorts), f"record of {sort}")
        record = make_record(target, draft, prompts, **given)
        progress((n + 0.6) / len(sorts), f"policies for {sort}")
        replay = Replay(record, costs)
        best = {name: search(replay, name) for name in FAMILIES}
        strategy = min((best[name] for name in STRATEGIES), key=lambda its: its.ms_per_token)
        chosen = [its.policy for its in (best[HEURISTIC], strategy, best[EXPECTED])]
        runs = run_policies(
            target, draft, chosen, prompts[: asked.confirm], turns=asked.turns, costs=costs, **given
        )
        replays = [replay.run(NONE), *best.values(), replay.run(ORACLE)]
        took[sort] = {
            "replays": [asdict(its) for its in replays],
            "runs": [run.to_json(runs[0]) for run in runs],
        }
        of_record = {
            "texts": len(record.completions),
            "tokens": record.n_tokens,
            "drafted": len(record.drafted),
        }
        cells.append({"sort": sort, **of_record, "acceptance": record.acceptance})
    kept = {name: measured[name] for name in ("n_threads", "depth", "draft", "alone", "verify")}
    kept["draft"] = {key: value for key, value in measured["draft"].items() if key != "model"}
    return cells, {"costs": kept, "sorts": took}
