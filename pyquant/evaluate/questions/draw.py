"""Draw some of a file's questions: those that llama-perplexity draws.

It draws with std::mt19937 of seed 1, whose 32-bit numbers numpy's RandomState has too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

Draw = Callable[[int, int], list[int]]


def draw_by_integers(n: int, n_drawn: int) -> list[int]:
    """Draw as HellaSwag does: by std::uniform_int_distribution of libstdc++; others keep their places."""
    numbers, left = _numbers(), list(range(n))
    return [left.pop(_below(len(left), numbers)) for _ in range(min(n, n_drawn))]


def draw_by_floats(n: int, n_drawn: int) -> list[int]:
    """Draw as Winogrande and multiple choice do: by single-precision shares, the last one fills the gap."""
    if n_drawn >= n:
        return list(range(n))
    numbers, left, drawn = _numbers(), list(range(n)), []
    for _ in range(n_drawn):
        share = np.float32(next(numbers)) * np.float32(2.0**-32)
        # A share that was rounded up to 1 would be behind the end.
        i = min(int(share * np.float32(len(left))), len(left) - 1)
        drawn.append(left[i])
        left[i] = left[-1]
        left.pop()
    return drawn


def _numbers() -> Iterator[int]:
    generator = np.random.RandomState(1)
    while True:
        yield int(generator.randint(0, 1 << 32, dtype=np.uint32))


def _below(n: int, numbers: Iterator[int]) -> int:
    """Make a number below n of 32-bit ones (Lemire 2019, arXiv:1805.10941)."""
    while True:
        product = next(numbers) * n
        if product % (1 << 32) >= (1 << 32) % n:
            return product >> 32
