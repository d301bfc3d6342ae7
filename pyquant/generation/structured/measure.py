"""Let models answer a task's questions under several techniques, and check the answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pyquant import limits
from pyquant.errors import ConfigError
from pyquant.generation.grammar.engine import Compiled
from pyquant.generation.grammar.engines import check_engine, compile_by, make_engine
from pyquant.generation.sampling.generate import generate, make_plan
from pyquant.generation.sampling.prompt import Prompt
from pyquant.generation.sampling.result import Sample
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.structured.answers import Answer, Cell, answer_of
from pyquant.generation.structured.checker import Checker
from pyquant.generation.structured.cost import Cost
from pyquant.generation.structured.task import (
    TECHNIQUES,
    Item,
    Task,
    Verdict,
    as_text,
    keeps_to_grammar,
    messages,
)
from pyquant.llama.model import Model, path_of
from pyquant.llama.vocabulary import Vocabulary
from pyquant.machine.memory import forget_peak
from pyquant.models.model_file import AnyModel, open_model

SCHEMA = "pyquant.structured/2"
LENGTHS = (50, 100, 200)

# (completions done, all of them)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class StructuredResult:
    """All models, techniques and lengths."""

    task: str
    engine: str
    sampling: Sampling
    cells: list[Cell]

    def texts(self) -> Iterator[dict[str, Any]]:
        """Yield every completion with its verdict, as `pyquant structured --texts` writes them."""
        for cell in self.cells:
            place = {"model": cell.model, "technique": cell.technique, "max_tokens": cell.max_tokens}
            for answer in cell.answers:
                yield {**place, **asdict(answer)}

    def to_json(self) -> dict[str, Any]:
        """Return it as `pyquant structured --json` prints it."""
        first = self.cells[0].model
        bases = {(cell.technique, cell.max_tokens): cell for cell in self.cells if cell.model == first}
        cells = [
            cell.to_json(None if cell.model == first else bases[cell.technique, cell.max_tokens])
            for cell in self.cells
        ]
        head = {"schema": SCHEMA, "task": self.task, "engine": self.engine}
        return {**head, "sampling": self.sampling.to_json(), "cells": cells}


def measure_structured(
    models: Sequence[AnyModel],
    task: Task,
    *,
    techniques: Sequence[str],
    lengths: Sequence[int] = LENGTHS,
    n: int = 100,
    seed: int = 0,
    engine: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> StructuredResult:
    """Measure what models generate: temperature 1, top-p 0.95, the same seeds everywhere.

    Completions are generated once, at the greatest length; shorter ones are their beginnings.

    Parameters
    ----------
    models
        The first is what others are tested against.
    task
    techniques
        Of `pyquant.generation.structured.task.TECHNIQUES`.
    lengths
        Tokens of a completion, at most.
    n
        Completions for each model and technique: the task's questions in turns.
    seed
    engine
        What follows the grammar; None: the task's own.
    threads
        None: all cores.
    progress

    Raises
    ------
    ConfigError, ModelFileError, GrammarError
    """
    check_settings(techniques, lengths, n, engine)
    asked = questions(task, n)
    cells: list[Cell] = []
    opened = [open_model(model) for model in models]  # one that cannot be read fails before others have run
    with Checker(task) as checker:
        for model in opened:
            forget_peak()
            with Model(model) as loaded:
                compiled = compile_for(loaded.vocabulary, asked, techniques, engine or task.engine)
                for technique in techniques:
                    cost = Cost()
                    n_done = n * len(cells) // len(lengths)
                    samples = []
                    for sample in ask(
                        loaded, task, asked, technique, compiled, max(lengths), seed, cost, threads=threads
                    ):
                        samples.append(sample)
                        if progress:
                            progress(n_done + len(samples), n * len(models) * len(techniques))
                    samples.sort(key=lambda sample: sample.prompt)
                    answers = check_at(samples, asked, lengths, loaded, checker)
                    cells += [
                        Cell(str(path_of(model)), technique, length, of_length, cost)
                        for length, of_length in answers.items()
                    ]
    return StructuredResult(task.name, engine or task.engine, sampling_for(seed), cells)


def check_settings(
    techniques: Sequence[str], lengths: Sequence[int], n: int, engine: str | None = None
) -> None:
    """Refuse what cannot be measured. Raises ConfigError."""
    if engine is not None:
        check_engine(engine)
    limits.SAMPLES.check("n", n)
    for length in lengths:
        limits.TOKENS.check("lengths", length)
    if not lengths or not techniques:
        raise ConfigError("structured: at least one length and one technique are needed")
    if unknown := set(techniques) - set(TECHNIQUES):
        raise ConfigError(f"technique: expected one of {', '.join(TECHNIQUES)}, got {unknown.pop()!r}")


def sampling_for(seed: int) -> Sampling:
    """Return how all completions are drawn: temperature 1, top-p 0.95."""
    return Sampling(temperature=1, top_k=0, top_p=0.95, min_p=0, seed=seed)


def questions(task: Task, n: int) -> list[Item]:
    """Return what is asked for each of n completions: the task's questions in turns."""
    return [task.items[i % len(task.items)] for i in range(n)]


def ask(
    model: Model,
    task: Task,
    asked: Sequence[Item],
    technique: str,
    compiled: Sequence[Compiled] | None,
    max_tokens: int,
    seed: int,
    cost: Cost,
    *,
    threads: int | None = None,
    done: Collection[int] = (),
) -> Iterator[Sample]:
    """Let a model answer questions under a technique, and yield each completion when it is complete.

    Grammars are those that `compile_for` gives. `cost` gets what the completions take. Completions whose
    numbers are `done` are there already, and are not generated again.

    Raises
    ------
    ConfigError, ModelFileError, GrammarError
    """
    plan = make_plan(
        model, [prompt_of(model, task, item, technique) for item in asked], max_tokens=max_tokens
    )
    if len(asked) > 1:
        plan = replace(plan, n_shared=_n_shared(model, task, technique))
    written = generate(
        model,
        plan,
        sampling_for(seed),
        grammar=compiled if keeps_to_grammar(technique) else None,
        measure_mask=True,
        threads=threads,
        times=cost.times,
        done={(number, 0) for number in done},
    )
    yield from cost.of(written)


def check_at(
    samples: Iterable[Sample], asked: Sequence[Item], lengths: Sequence[int], model: Model, checker: Checker
) -> dict[int, list[Answer]]:
    """Check completions at each length, the least first; one for each question, in their order."""
    pairs = list(zip(samples, asked))
    known: dict[tuple[int, str], tuple[Verdict, str]] = {}

    def check(item: Item, text: str) -> tuple[Verdict, str]:
        """Check a text once: a completion that ended is the same at greater lengths."""
        key = id(item), text
        if key not in known:
            known[key] = checker.check(item, text)
        return known[key]

    return {
        length: [
            answer_of(sample, item, length, number, model.vocabulary, check)
            for number, (sample, item) in enumerate(pairs)
        ]
        for length in sorted(lengths)
    }


def compile_for(
    vocabulary: Vocabulary, asked: Sequence[Item], techniques: Sequence[str], engine: str
) -> list[Compiled] | None:
    """Compile the grammar of each question, equal ones once; None where no technique keeps to it."""
    if not any(map(keeps_to_grammar, techniques)):
        return None
    maker = make_engine(engine, vocabulary)
    grammars = {item.grammar for item in asked}
    compiled = {grammar: compile_by(maker, grammar, vocabulary) for grammar in grammars}
    return [compiled[item.grammar] for item in asked]


def _n_shared(model: Model, task: Task, technique: str) -> int:
    """Count the tokens with which all prompts of a task begin, however many of them are asked."""
    first, *others = (prompt_of(model, task, item, technique).tokens(model).tolist() for item in task.items)
    n = min(map(len, [first, *others])) - 1
    while any(other[:n] != first[:n] for other in others):
        n -= 1
    return n


def prompt_of(model: Model, task: Task, item: Item, technique: str) -> Prompt:
    """Return a question as a prompt: by the model's chat template, if it has one."""
    turns = messages(task, item, technique)
    if model.chat_template() is None:
        return Prompt(as_text(turns), name=item.name)
    return Prompt(messages=turns, name=item.name)
