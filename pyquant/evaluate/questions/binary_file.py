"""Read multiple-choice questions in llama-perplexity's binary files: ARC, MMLU, TruthfulQA.

A file has the number of questions, where each begins, and the questions: a text, answers with one right one
(mc1), and answers of which several are right (mc2, which llama-perplexity does not score). Integers have 32
bits, a text has its length before it.
"""

from __future__ import annotations

import struct
from pathlib import Path

from pyquant.errors import TextError
from pyquant.evaluate.questions.question import Question

MOST_ANSWERS = 100  # llama-perplexity reads no more
RIGHT = 1  # an answer's label


def read_multiple_choice(path: Path, data: bytes) -> list[Question]:
    """Read questions. data: what is in `path`. Raises TextError: it names the question's number."""
    reader = _Reader(path, data)
    n_questions = reader.integer()
    reader.take(4 * n_questions)  # where each begins: they follow each other
    if n_questions == 0:
        raise reader.error("has no questions")
    questions = []
    for number in range(1, n_questions + 1):
        reader.number = number
        questions.append(_question(reader))
    return questions


class _Reader:
    """Reads a file from its beginning to its end. number: of the question at hand."""

    def __init__(self, path: Path, data: bytes) -> None:
        self._path, self._data, self._at, self.number = path, data, 0, 0

    def take(self, n: int) -> bytes:
        if n > len(self._data) - self._at:
            raise self.error(f"{n:,} bytes are said to follow byte {self._at:,}, which the file has not")
        self._at += n
        return self._data[self._at - n : self._at]

    def integer(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def text(self) -> bytes:
        return self.take(self.integer())

    def answers(self) -> tuple[list[bytes], list[int]]:
        """Return texts, and a label for each."""
        if (n := self.integer()) > MOST_ANSWERS:
            raise self.error(f"{n:,} answers; at most {MOST_ANSWERS} are read")
        texts = [self.text() for _ in range(n)]
        return texts, list(struct.unpack(f"<{n}i", self.take(4 * n)))

    def error(self, what: str) -> TextError:
        place = f"question {self.number:,}: " if self.number else ""
        return TextError(f"{self._path}: {place}{what}: is it a multiple-choice file of llama-perplexity?")


def _question(reader: _Reader) -> Question:
    text = reader.text()
    answers, labels = reader.answers()
    reader.answers()
    if not text or len(answers) < 2 or not all(answers):
        raise reader.error("the question or an answer is empty, or there are less than two answers")
    right = frozenset(i for i, label in enumerate(labels) if label == RIGHT)
    if not right:
        raise reader.error("no answer is marked as right")
    place = f"{reader._path}, question {reader.number:,}"
    return Question(place, tuple(text + b" " + answer for answer in answers), right)
