"""Read the questions of HellaSwag and Winogrande in llama-perplexity's text files."""

from __future__ import annotations

import re
from pathlib import Path

from pyquant.errors import TextError
from pyquant.evaluate.questions.question import Question
from pyquant.files.text import make_text

HELLASWAG = 6  # lines of a question: the context, the right ending's index, four endings
FIELD = rb'((?:[^,"]|"[^"]*")*)'
ROW = re.compile(b",".join([FIELD] * 4) + b",(.*)", re.DOTALL)


def read_hellaswag(path: Path, data: bytes) -> list[Question]:
    """Read six lines for each question. data: what is in `path`. Raises TextError: it names the line."""
    lines = _lines(path, data)
    if len(lines) % HELLASWAG:
        raise TextError(
            f"{path}: {len(lines):,} lines: a HellaSwag file has {HELLASWAG} for each question: context, "
            f"index of the right ending, four endings"
        )
    return [_ending(path, at, lines[at : at + HELLASWAG]) for at in range(0, len(lines), HELLASWAG)]


def _ending(path: Path, at: int, lines: list[bytes]) -> Question:
    context, right, *endings = lines
    if right.strip() not in (b"0", b"1", b"2", b"3"):
        raise TextError(
            f"{path}:{at + 2}: {_shown(right)} is no index from 0 to 3 of a right ending: is it a HellaSwag "
            f"file of llama-perplexity?"
        )
    texts = tuple(context + b" " + ending for ending in endings)
    return Question(f"{path}:{at + 1}", texts, frozenset([int(right)]))


def read_winogrande(path: Path, data: bytes) -> list[Question]:
    """Read a line of number, sentence with _, two words and the right one for each question.

    data: what is in `path`. Raises TextError: it names the line.
    """
    questions = [_gap(f"{path}:{number}", line) for number, line in enumerate(_lines(path, data), 1) if line]
    if not questions:
        raise TextError(f"{path}: has no questions")
    return questions


def _gap(place: str, line: bytes) -> Question:
    row = ROW.fullmatch(line)
    if row is None:
        raise TextError(
            f"{place}: a line of a Winogrande file has five fields: number,sentence,word,word,1 or 2"
        )
    _, sentence, *words, right = row.groups()
    # As llama-perplexity: marks around the sentence go, doubled ones in it stay.
    before, gap, after = (sentence[1:-1] if sentence.startswith(b'"') else sentence).partition(b"_")
    if not gap:
        raise TextError(f"{place}: the sentence has no _, where a word is put in: {_shown(sentence)}")
    if right.strip() not in (b"1", b"2"):
        raise TextError(f"{place}: the right word is 1 or 2, not {_shown(right)}")
    until = tuple(before + word for word in words)
    return Question(place, tuple(text + after for text in until), frozenset([int(right) - 1]), until)


def _lines(path: Path, data: bytes) -> list[bytes]:
    lines = make_text(path, data).data.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def _shown(text: bytes) -> str:
    shown = text[:40].decode(errors="replace")
    return repr(shown + "…" if len(text) > 40 else shown)
