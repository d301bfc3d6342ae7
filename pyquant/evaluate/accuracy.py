"""Measure how many multiple-choice questions models answer rightly, and which answers change."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant import limits
from pyquant.errors import ConfigError
from pyquant.evaluate.questions.ask import ask
from pyquant.evaluate.questions.binary_file import read_multiple_choice
from pyquant.evaluate.questions.draw import Draw, draw_by_floats, draw_by_integers
from pyquant.evaluate.questions.flips import flips
from pyquant.evaluate.questions.question import Question
from pyquant.evaluate.questions.text_files import read_hellaswag, read_winogrande
from pyquant.files.text import text_bytes
from pyquant.llama.model import Model, path_of
from pyquant.models.model_file import AnyModel

SCHEMA = "pyquant.accuracy/1"
FORMATS: dict[str, tuple[Callable[[Path, bytes], list[Question]], Draw]] = {
    "hellaswag": (read_hellaswag, draw_by_integers),
    "winogrande": (read_winogrande, draw_by_floats),
    "multiple_choice": (read_multiple_choice, draw_by_floats),
}

# (answers given, all of them): of all models
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Answers:
    """One model's answers to n questions.

    scores: for each question, each answer's mean log-probability. chosen: (n,) the answer of the highest.
    right: (n,) bool.
    """

    model: str
    scores: list[list[float]]
    chosen: NDArray[np.int64]
    right: NDArray[np.bool_]

    @property
    def accuracy(self) -> tuple[float, float]:
        """The share of right answers, and its standard error."""
        share, n = float(self.right.mean()), len(self.right)
        return share, math.sqrt(share * (1 - share) / (n - 1)) if n > 1 else 0.0


@dataclass(frozen=True)
class FileAccuracy:
    """All models' answers to the questions of one file.

    Attributes
    ----------
    format : str
        hellaswag, winogrande or multiple_choice.
    file, sha256 : str
    n_in_file : int
        Questions that the file has.
    questions : list of Question
        Those that were asked.
    answers : list of Answers
        One for each model, the base first.
    """

    format: str
    file: str
    sha256: str
    n_in_file: int
    questions: list[Question]
    answers: list[Answers]

    @property
    def chance(self) -> float:
        """The share of right answers of who guesses."""
        return float(np.mean([len(question.right) / len(question.texts) for question in self.questions]))

    def to_json(self) -> dict[str, Any]:
        """Return it as `pyquant accuracy --json` prints each of its `files`."""
        return {
            "format": self.format,
            "file": self.file,
            "sha256": self.sha256,
            "n_in_file": self.n_in_file,
            "n_questions": len(self.questions),
            "chance": self.chance,
            "right": [sorted(question.right) for question in self.questions],
            "base": _to_json(self.answers[0]),
            "candidates": [
                _to_json(own)
                | asdict(flips(self.answers[0].chosen, own.chosen, self.answers[0].right, own.right))
                for own in self.answers[1:]
            ],
        }


def _to_json(answers: Answers) -> dict[str, Any]:
    share, error = answers.accuracy
    return {
        "model": answers.model,
        "accuracy": share,
        "error": error,
        "chosen": answers.chosen.tolist(),
        "scores": answers.scores,
    }


@dataclass(frozen=True)
class AccuracyReport:
    """Accuracies of models, by file of questions."""

    files: list[FileAccuracy]

    def to_json(self) -> dict[str, Any]:
        """Return the report as `pyquant accuracy --json` prints it."""
        return {"schema": SCHEMA, "files": [file.to_json() for file in self.files]}


def measure_accuracy(
    base: AnyModel,
    candidates: Sequence[AnyModel],
    files: Mapping[str, str | os.PathLike[str]],
    *,
    n_questions: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> AccuracyReport:
    """Ask a base and candidates questions, scored as llama-perplexity does; one model at a time.

    Parameters
    ----------
    base, candidates
        Models, each a path or a ModelFile; their vocabularies may differ.
    files
        A file of questions by its format: hellaswag, winogrande or multiple_choice.
    n_questions
        How many of each file are asked: those that llama-perplexity draws; None: all.
    threads
        None: all cores.
    progress
        Called with answers given and all of them.

    Raises
    ------
    ConfigError
        A model is given twice, or a format is unknown.
    TextError
        A file of questions cannot be read, or a question is too long. The message names the place.
    ModelFileError, RuntimeLibraryError
    """
    models = [base, *candidates]
    if len({path_of(model) for model in models}) < len(models):
        raise ConfigError("accuracy: a model is given twice")
    if not files or not files.keys() <= FORMATS.keys():
        raise ConfigError(f"accuracy: expected a file for one of {', '.join(FORMATS)}")
    if n_questions is not None:
        limits.QUESTIONS.check("questions", n_questions)
    asked = {format_: _read(format_, Path(file), n_questions) for format_, file in files.items()}
    done, total = 0, len(models) * sum(len(questions) for questions, _, _ in asked.values())

    def advance(n: int) -> None:
        nonlocal done
        done += n
        if progress:
            progress(done, total)

    answers: dict[str, list[Answers]] = {format_: [] for format_ in asked}
    for each in models:
        with Model(each) as model:
            for format_, (questions, _, _) in asked.items():
                scores = ask(model, questions, threads=threads, advance=advance)
                answers[format_].append(_answers(str(model.path), format_, questions, scores))
    return AccuracyReport(
        [
            FileAccuracy(format_, str(files[format_]), sha256, n, questions, answers[format_])
            for format_, (questions, n, sha256) in asked.items()
        ]
    )


def _read(format_: str, path: Path, n_questions: int | None) -> tuple[list[Question], int, str]:
    """Read a file once: it may be a pipe. Returns the questions to ask, how many it has, and its SHA-256."""
    read, draw = FORMATS[format_]
    data = text_bytes(path)
    questions = read(path, data)
    drawn = range(len(questions)) if n_questions is None else draw(len(questions), n_questions)
    return [questions[i] for i in drawn], len(questions), hashlib.sha256(data).hexdigest()


def _answers(model: str, format_: str, questions: list[Question], scores: list[list[float]]) -> Answers:
    """Choose the answer of the highest score: of equals the first, but Winogrande's second word."""
    last = format_ == "winogrande"
    chosen = np.array(
        [len(own) - 1 - int(np.argmax(own[::-1])) if last else int(np.argmax(own)) for own in scores]
    )
    right = np.array([int(i) in question.right for i, question in zip(chosen, questions)])
    return Answers(model, scores, chosen, right)
