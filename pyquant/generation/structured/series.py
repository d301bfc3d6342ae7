"""Let a model answer the questions of several tasks; what is interrupted goes on at the next completion."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

from pydantic import BaseModel, ConfigDict, FiniteFloat, NonNegativeInt, ValidationError

from pyquant.files.output_file import write_bytes
from pyquant.generation.sampling.result import Sample
from pyquant.generation.structured.answers import Answer
from pyquant.generation.structured.checker import Checker
from pyquant.generation.structured.cost import Cost
from pyquant.generation.structured.measure import ask, check_at, check_settings, compile_for, questions
from pyquant.generation.structured.tasks import key_of, label_of, load_task
from pyquant.llama.model import Model
from pyquant.models.model_file import AnyModel

# A completion by its task's key, technique and number.
Texts = dict[tuple[str, str, int], Sample]
# Answers of a task under a technique, at most so many tokens a completion.
Answers = dict[tuple[str, str, int], list[Answer]]
# What the completions of a task under a technique took that were generated now; none where all were there.
Costs = dict[tuple[str, str], Cost]


class Line(BaseModel):
    """A line of the file."""

    model_config = ConfigDict(extra="forbid")

    task: str
    technique: str
    sample: NonNegativeInt
    name: str
    text: str
    tokens: list[NonNegativeInt]
    finish: str
    log_p: list[FiniteFloat]
    allowed: list[FiniteFloat]

    def to_sample(self) -> Sample:
        """Return the completion."""
        return Sample(
            self.sample, self.name, 0, self.tokens, self.log_p, self.allowed, self.text.encode(), self.finish
        )


def measure_series(
    model: AnyModel,
    *,
    tasks: Sequence[str],
    techniques: Sequence[str],
    lengths: Sequence[int],
    samples: int,
    seed: int,
    file: Path,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Answers, Costs, bytes]:
    """Generate completions, keep each in a file as soon as it is complete, and check them all.

    Parameters
    ----------
    model
    tasks, techniques
        Names; for a task of one's own, its file. Answers have these names without folders.
    lengths, samples, seed, threads
        As for `measure_structured`, of each task.
    file
        Completions, a JSON object in each line. Those that are in it are not generated again. Others stay in
        it: of further tasks, techniques and samples. When all are there, they are in order.
    progress
        Called with the number of completions that are done, and of all.

    Returns
    -------
    answers, costs
    texts : bytes
        The lines of the completions that were asked for.

    Raises
    ------
    ConfigError, ModelFileError, GrammarError, OutputError
    """
    check_settings(techniques, lengths, samples)
    keys = {name: key_of(name) for name in tasks}
    wanted = set(product(keys.values(), techniques, range(samples)))
    answers: Answers = {}
    costs: Costs = {}
    with contextlib.ExitStack() as stack:
        loaded = stack.enter_context(Model(model))
        texts = read_texts(file, loaded.n_vocab)
        _write(file, texts)  # without a line that was cut off
        lines = stack.enter_context(file.open("a", encoding="utf-8"))
        for name in tasks:
            task, label, key = load_task(name), label_of(name), keys[name]
            asked = questions(task, samples)
            compiled = compile_for(loaded.vocabulary, asked, techniques, task.engine)
            for technique in techniques:
                done = {number for other, way, number in texts if (other, way) == (key, technique)}
                cost = Cost()
                for sample in ask(
                    loaded, task, asked, technique, compiled, max(lengths), seed, cost,
                    threads=threads, done=done,
                ):  # fmt: skip
                    texts[key, technique, sample.prompt] = sample
                    lines.write(_line(key, technique, sample))
                    lines.flush()
                    if progress:
                        progress(len(wanted & texts.keys()), len(wanted))
                if cost.n_completions:
                    costs[label, technique] = cost
            with Checker(task) as checker:
                for technique in techniques:
                    its = (texts[key, technique, number] for number in range(samples))
                    for length, of_length in check_at(its, asked, lengths, loaded, checker).items():
                        answers[label, technique, length] = of_length
    _write(file, texts)
    return answers, costs, _lines({place: texts[place] for place in wanted})


def read_texts(file: Path, n_vocab: int) -> Texts:
    """Read the completions of a file, if it is there; what is no whole line of one is passed over.

    n_vocab: tokens of the model's vocabulary.
    """
    texts: Texts = {}
    if file.exists():
        for line in file.read_bytes().splitlines():
            with contextlib.suppress(ValidationError):
                kept = Line.model_validate_json(line, strict=True)
                if max(kept.tokens, default=0) < n_vocab:
                    texts[kept.task, kept.technique, kept.sample] = kept.to_sample()
    return texts


def _write(file: Path, texts: Texts) -> None:
    write_bytes(file, _lines(texts), sources=[], force=True)


def _lines(texts: Texts) -> bytes:
    return "".join(
        _line(name, technique, texts[name, technique, i]) for name, technique, i in sorted(texts)
    ).encode()


def _line(task: str, technique: str, sample: Sample) -> str:
    own = {key: getattr(sample, key) for key in ("name", "text", "tokens", "finish", "log_p", "allowed")}
    return json.dumps({"task": task, "technique": technique, "sample": sample.prompt, **own}) + "\n"
