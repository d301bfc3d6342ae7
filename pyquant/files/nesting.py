"""Bound what a parsed file may hold, so that nothing that handles it later meets what it cannot take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

DEEPEST = 64  # tables or lists within one another; no file of pyquant has more than 10
LARGEST_INTEGER = 1 << 64
TOO_LARGE = "it has an integer of more than 64 bits"


class TooDeep(ValueError):
    """Content is nested more than `DEEPEST` deep."""

    def __init__(self) -> None:
        super().__init__(f"nested more than {DEEPEST} deep")


def parse_bounded(text: str, parse: Callable[[str], Any], malformed: type[ValueError]) -> Any:
    """Parse TOML or JSON, and check its content.

    malformed: what `parse` raises where the text is not in its language; it is let through.
    Raises ValueError: the message says what is too deep or too large, in half a sentence.
    """
    try:
        content = parse(text)
    except RecursionError:
        raise TooDeep from None
    except malformed:
        raise
    except ValueError:  # Python reads no integer of thousands of digits
        raise ValueError(TOO_LARGE) from None
    check_content(content)
    return content


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
                raise ValueError(TOO_LARGE)
        if not below:
            return
        level = below
    raise TooDeep
