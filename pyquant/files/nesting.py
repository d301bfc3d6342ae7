"""Bound what a parsed file may hold, so that nothing that handles it later meets what it cannot take."""

from __future__ import annotations

from typing import Any

DEEPEST = 64  # tables or lists within one another; no file of pyquant has more than 10
LARGEST_INTEGER = 1 << 64


class TooDeep(ValueError):
    """Content is nested more than `DEEPEST` deep."""

    def __init__(self) -> None:
        super().__init__(f"nested more than {DEEPEST} deep")


def check_content(content: Any) -> None:
    """Refuse content of TOML or JSON that is nested too deeply or has integers of more than 64 bits.

    Functions that walk through nested content call themselves, and Python bounds how often; it also refuses
    to print an integer of thousands of digits.

    Raises ValueError: the message says what is too deep or too large, in half a sentence.
    """
    level = [content]
    for _ in range(DEEPEST):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += value.values()
            elif isinstance(value, list):
                below += value
            elif isinstance(value, int) and abs(value) >= LARGEST_INTEGER:
                raise ValueError("it has an integer of more than 64 bits")
        if not below:
            return
        level = below
    raise TooDeep
