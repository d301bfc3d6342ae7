"""Let models answer a task's questions under several techniques, and check what they write."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pyquant import limits
from pyquant.errors import ConfigError
from pyquant.formulas import mcnemar, wilson
from pyquant.generate.generate import generate, make_plan
from pyquant.generate.prompt import Prompt
from pyquant.generate.result import END, Sample
from pyquant.generate.sampling import Sampling
from pyquant.grammar.engine import Compiled
from pyquant.grammar.engines import make_engine
from pyquant.llama.model import Model, path_of
from pyquant.llama.vocabulary import Vocabulary
from pyquant.models.model_file import AnyModel
from pyquant.structured.task import TECHNIQUES, Item, Task, Verdict, as_text, keeps_to_grammar, messages

SCHEMA = "pyquant.structured/1"
SCORES = ("parses", "evaluates", "right")

# (texts done, all of them)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Answer:
    """A text that a model wrote, as it was at a length.

    Attributes
    ----------
    item : str
        The question's name.
    sample : int
        Number of the text; with the seed it decides the random numbers, for all models alike.
    text : str
    cut_off : bool
        Whether it had as many tokens as were allowed, and did not end by itself.
    verdict : Verdict
    """

    item: str
    sample: int
    text: str
    cut_off: bool
    verdict: Verdict


@dataclass(frozen=True)
class Cell:
    """What a model wrote under a technique, at most so many tokens a text.

    Attributes
    ----------
    model, technique : str
    max_tokens : int
    answers : list of Answer
    seconds : float
        Time of writing all texts at the longest length.
    n_tokens : int
        Tokens that were written in that time.
    removed : float or None
        Mean share of probability that the grammar took away from a token; None without one.
    """

    model: str
    technique: str
    max_tokens: int
    answers: list[Answer]
    seconds: float
    n_tokens: int
    removed: float | None

    def n(self, score: str) -> int:
        """Return how many answers have a score: parses, evaluates or right."""
        return sum(getattr(answer.verdict, score) for answer in self.answers)

    def to_json(self, base: Cell | None) -> dict[str, Any]:
        """Return it as `pyquant structured --json` prints each of its `cells`.

        base: the first model's under the same technique and length, for McNemar's test on the same seeds.
        """
        n = len(self.answers)
        scores = {}
        for score in SCORES:
            low, high = wilson(self.n(score), n)
            scores[score] = {"n": self.n(score), "share": self.n(score) / n, "low": low, "high": high}
            if base is not None:
                scores[score]["p_value"] = mcnemar(*_discordant(self, base, score))
        return {
            "model": self.model,
            "technique": self.technique,
            "max_tokens": self.max_tokens,
            "n": n,
            "cut_off": sum(answer.cut_off for answer in self.answers),
            "scores": scores,
            "seconds_per_text": self.seconds / n,
            "tokens_per_second": self.n_tokens / self.seconds,
            "removed": self.removed,
        }


@dataclass(frozen=True)
class StructuredResult:
    """All models, techniques and lengths."""

    task: str
    engine: str
    sampling: Sampling
    cells: list[Cell]

    def texts(self) -> Iterator[dict[str, Any]]:
        """Yield every text with its verdict, as `pyquant structured --texts` writes them."""
        for cell in self.cells:
            place = {"model": cell.model, "technique": cell.technique, "max_tokens": cell.max_tokens}
            for answer in cell.answers:
                yield {**place, **asdict(answer)}

    def to_json(self) -> dict[str, Any]:
        """Return it as `pyquant structured --json` prints it."""
        first = self.cells[0].model
        bases = {(cell.technique, cell.max_tokens): cell for cell in self.cells if cell.model == first}
        return {
            "schema": SCHEMA,
            "task": self.task,
            "engine": self.engine,
            "sampling": self.sampling.to_json(),
            "cells": [
                cell.to_json(None if cell.model == first else bases[cell.technique, cell.max_tokens])
                for cell in self.cells
            ],
        }


def measure_structured(
    models: Sequence[AnyModel],
    task: Task,
    *,
    techniques: Sequence[str],
    lengths: Sequence[int] = (50, 100, 200),
    n: int = 100,
    seed: int = 0,
    engine: str = "llguidance",
    n_parallel: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> StructuredResult:
    """Measure what models write: temperature 1, top-p 0.95, the same seeds everywhere.

    Texts are written once, at the greatest length; shorter ones are their beginnings.

    Parameters
    ----------
    models
        The first is what others are tested against.
    task
    techniques
        Of `pyquant.structured.task.TECHNIQUES`.
    lengths
        Tokens of a text, at most.
    n
        Texts for each model and technique: the task's questions in turns.
    seed
    engine
        What follows the grammar.
    n_parallel
        Texts side by side.
    threads
        None: all processors.
    progress

    Raises
    ------
    ConfigError, ModelFileError, GrammarError
    """
    limits.SAMPLES.check("n", n)
    for length in lengths:
        limits.TOKENS.check("lengths", length)
    if not lengths or not techniques:
        raise ConfigError("structured: at least one length and one technique are needed")
    if unknown := set(techniques) - set(TECHNIQUES):
        raise ConfigError(f"technique: expected one of {', '.join(TECHNIQUES)}, got {unknown.pop()!r}")
    sampling = Sampling(temperature=1, top_k=0, top_p=0.95, min_p=0, seed=seed)
    asked = [task.items[i % len(task.items)] for i in range(n)]
    cells: list[Cell] = []
    for model in models:
        with Model(model) as loaded:
            compiled = None
            if any(map(keeps_to_grammar, techniques)):
                compiled = _compile(loaded.vocabulary, asked, engine)
            for technique in techniques:
                prompts = [_prompt(loaded, task, item, technique) for item in asked]
                plan = make_plan(loaded, prompts, max_tokens=max(lengths), n_parallel=n_parallel)
                form = compiled if keeps_to_grammar(technique) else None
                texts = generate(loaded, plan, sampling, grammar=form, measure_mask=True, threads=threads)
                n_done = len(cells) // len(lengths)
                begin, samples = time.perf_counter(), []
                for sample in texts:
                    samples.append(sample)
                    if progress:
                        progress(n * n_done + len(samples), n * len(models) * len(techniques))
                seconds = time.perf_counter() - begin
                samples.sort(key=lambda sample: sample.prompt)
                name = str(path_of(model))
                cells += [
                    _cell(name, technique, length, seconds, samples, asked, task, loaded.vocabulary)
                    for length in sorted(lengths)
                ]
    return StructuredResult(task.name, engine, sampling, cells)


def _compile(vocabulary: Vocabulary, asked: Sequence[Item], engine: str) -> list[Compiled]:
    """Compile the grammar of each item, equal ones once."""
    maker = make_engine(engine, vocabulary)
    compiled = {grammar: maker.compile(grammar) for grammar in {item.grammar for item in asked}}
    return [compiled[item.grammar] for item in asked]


def _prompt(model: Model, task: Task, item: Item, technique: str) -> Prompt:
    turns = messages(task, item, technique)
    if model.chat_template() is None:
        return Prompt(as_text(turns), name=item.name)
    return Prompt(messages=turns, name=item.name)


def _cell(
    name: str,
    technique: str,
    length: int,
    seconds: float,
    samples: Sequence[Sample],
    asked: Sequence[Item],
    task: Task,
    vocabulary: Vocabulary,
) -> Cell:
    answers = []
    for number, (sample, item) in enumerate(zip(samples, asked)):
        whole = len(sample.tokens) <= length
        kept = sample.tokens[:length]
        text = b"".join(vocabulary.piece(token) for token in kept).decode(errors="replace")
        cut_off = not (whole and sample.finish == END)
        answers.append(Answer(item.name, number, text, cut_off, task.check(item, text)))
    shares = [share for sample in samples for share in sample.allowed[:length]]
    removed = 1 - sum(shares) / len(shares) if shares else None
    n_tokens = sum(len(sample.log_p) for sample in samples)
    return Cell(name, technique, length, answers, seconds, n_tokens, removed)


def _discordant(cell: Cell, base: Cell, score: str) -> tuple[int, int]:
    """Count answers that only the one and only the other has right."""
    pairs = [
        (getattr(a.verdict, score), getattr(b.verdict, score)) for a, b in zip(cell.answers, base.answers)
    ]
    return sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)
