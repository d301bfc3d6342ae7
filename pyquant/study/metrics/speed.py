"""Speed: tokens per second, of all models of a study in turn."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from pyquant import limits
from pyquant.evaluate.speed import measure_speed
from pyquant.llama.offload import Offload
from pyquant.study.metric import Asked, Metric, Work
from pyquant.study.quantizer import Quantizer
from pyquant.study.results.columns import Column, Flat, get
from pyquant.study.results.figures import Drawing, Panel, Points, figure, tall
from pyquant.study.results.read import ModelResults, RowResults
from pyquant.study.study_text import StudyText
from pyquant.study.task import Measured, Progress, Task, of_count

GENERATED = 10  # generation is that much slower than prompt processing
MOST_NAMED = 3  # quantizers in a sentence on speed
TESTS = {"prompt": "Speed of prompt processing", "generation": "Speed of generation"}


class SpeedConfig(BaseModel):
    """Settings of what is run to measure speed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt: Annotated[int, limits.TOKENS.interval] = Field(512, description="tokens of prompt processing")
    generate: Annotated[int, limits.TOKENS.interval] = Field(128, description="tokens of generation")
    rounds: Annotated[int, limits.ROUNDS.interval] = Field(
        5, description="times that every model is run, in turn with the others"
    )


class Speed(Metric):
    """Processes a prompt and generates, every model in turn with the others."""

    name = "speed"
    version = 1
    unit = "pair"
    alone = True
    settings = SpeedConfig
    title = "Speed"
    note = "All models were run in turn, so that drift of the machine meets them alike."
    columns = (
        Column("prompt", "prompt (tokens/s)", "of prompt processing: median of the rounds ± half their range",
               ends=("prompt_low", "prompt_high")),
        Column("generation", "generation (tokens/s)",
               "of generation: median of the rounds ± half their range",
               ends=("generation_low", "generation_high")),
    )  # fmt: skip

    def inputs(self, asked: Asked, text: StudyText | None) -> dict[str, Any]:
        offload = Offload.read(os.environ)
        return {
            **asked.settings[self.name].model_dump(),
            **({"threads": asked.threads} if asked.threads else {}),
            **({"offload": asdict(offload)} if offload.gpu_layers else {}),
        }

    def work(self, asked: Asked, quantizer: Quantizer | None, text: StudyText | None) -> Work:
        speed: SpeedConfig = asked.settings[self.name]
        options = {"n_prompt": speed.prompt, "n_generate": speed.generate, "rounds": speed.rounds}
        return Work(speed.rounds * (speed.prompt + GENERATED * speed.generate), options)

    def run(self, task: Task, threads: int | None, progress: Progress) -> list[Measured]:
        report = measure_speed(
            task.files, threads=threads, progress=of_count(progress, "measurement"), **dict(task.options)
        ).to_json()
        return [
            Measured({"n_threads": report["n_threads"], **{test: model[test] for test in TESTS}})
            for model in report["models"]
        ]

    def cells(self, row: RowResults, text: int) -> Flat:
        names = {"": "tokens_per_second", "_low": "low", "_high": "high", "_ratio": "ratio"}
        result = row.result("speed")
        return {
            f"{test}{suffix}": get(result, test, name) for test in TESTS for suffix, name in names.items()
        }

    def figures(self, model: ModelResults, text: int) -> list[Drawing]:
        if not all(row.result("speed") for row in model.rows):
            return []
        return [
            Drawing(
                f"{test.capitalize()}; lines go from the slowest to the fastest round.",
                figure(speeds(model, test), height=tall(len(model.rows))),
            )
            for test in TESTS
        ]

    def findings(self, model: ModelResults, text: int) -> list[str]:
        said = []
        for test, title in TESTS.items():
            known = [(row, rates[test]) for row in model.rows if (rates := row.result("speed"))]
            if len(known) < 2:
                continue
            row, rate = max(known, key=lambda pair: pair[1]["ratio"])
            as_fast = [
                peer.label
                for peer, other in known
                if peer is not row and other["ratio_high"] >= rate["ratio_low"]
            ]
            named = ", ".join(as_fast) if len(as_fast) <= MOST_NAMED else f"{len(as_fast)} others"
            also = f" Within the range of its rounds: {named}." if as_fast else ""
            said.append(
                f"{title}: {row.label} is the fastest, with {rate['tokens_per_second']:,.0f} tokens per "
                f"second, {rate['ratio']:.2f} times the unquantized model's rate.{also}"
            )
        return said


def speeds(model: ModelResults, test: str) -> Panel:
    """Return a panel of tokens per second relative to the unquantized model, from slowest to fastest round.

    test: `prompt` or `generation`.
    """
    known = [(row.label, rates[test]) for row in model.rows if (rates := row.result("speed"))]
    return Points(
        labels=[label for label, _ in known],
        values=[rate["ratio"] for _, rate in known],
        errors=[(rate["ratio"] - rate["ratio_low"], rate["ratio_high"] - rate["ratio"]) for _, rate in known],
        reference=1.0,
        axis="tokens per second, relative to the unquantized model",
        title=TESTS[test],
    )
