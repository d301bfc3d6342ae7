"""Files of multiple-choice questions in llama-perplexity's formats."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

WORDS = ["the", "hen", "tin", "rain", "ate", "in", "a", "then", "ant", "tea", "ether", "inner"]


def sentence(rng: np.random.Generator, n: int) -> str:
    return " ".join(rng.choice(WORDS, n))


def write_hellaswag(path: Path, n: int, seed: int = 0) -> Path:
    rng, lines = np.random.default_rng(seed), []
    for _ in range(n):
        endings = [sentence(rng, int(rng.integers(2, 9))) for _ in range(4)]
        lines += [sentence(rng, 9), str(rng.integers(4)), *endings]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_winogrande(path: Path, n: int, seed: int = 0) -> Path:
    """Every third sentence ends behind its gap, some by one or two words; every second is in marks.

    The file ends with an empty line: llama-perplexity does not read what is behind its last line's end.
    """
    rng, lines = np.random.default_rng(seed), []
    for i in range(n):
        text = f"{sentence(rng, 5)}, {sentence(rng, 2)}" if i % 2 else sentence(rng, 7)
        after = "" if i % 3 == 0 else " " + sentence(rng, i % 7)
        words = rng.choice(WORDS, 2, replace=False)
        text = f'"{text} _{after}"' if i % 2 else f"{text} _{after}"
        lines.append(f"{i},{text},{words[0]},{words[1]},{rng.integers(1, 3)}")
    path.write_text("\n".join(lines) + "\n\n")
    return path


def write_multiple_choice(path: Path, n: int, seed: int = 0, n_answers: tuple[int, int] = (2, 5)) -> Path:
    rng, questions = np.random.default_rng(seed), []
    for _ in range(n):
        answers = [sentence(rng, int(rng.integers(1, 6))) for _ in range(rng.integers(*n_answers))]
        right = int(rng.integers(len(answers)))
        both = 2 * _answers(answers, [int(i == right) for i in range(len(answers))])
        questions.append(_text(sentence(rng, 8)) + both)
    begins = np.cumsum([4 + 4 * n, *map(len, questions)])[:-1]
    path.write_bytes(struct.pack(f"<{n + 1}I", n, *begins) + b"".join(questions))
    return path


def _answers(texts: list[str], labels: list[int]) -> bytes:
    return (
        struct.pack("<I", len(texts)) + b"".join(map(_text, texts)) + struct.pack(f"<{len(labels)}i", *labels)
    )


def _text(text: str) -> bytes:
    return struct.pack("<I", len(text)) + text.encode()
