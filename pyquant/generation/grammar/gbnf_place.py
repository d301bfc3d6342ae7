"""Find where llama.cpp stops reading a grammar: it says what it expects, and how the line goes on."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable

EXPECTED = re.compile(r"error parsing grammar: (?P<what>.*? at) ?(?P<rest>.*)")
ENDED = "error parsing grammar: unexpected end of input"
UNDEFINED = re.compile(r"error parsing grammar: Undefined rule identifier '(?P<name>[\w-]+)'")
# Literals, classes and comments, in which no rule is named; names, and whether a rule of this name begins.
_WORDS = re.compile(
    r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|#[^\n]*|(?P<name>[\w-]+)(?P<defines>\s*::=)?', re.DOTALL
)
NO_GRAMMAR = "\n@"  # no rule, and nothing of one, begins so


def with_place(text: str, why: str, refusal: Callable[[str], str]) -> str:
    """Put line and column before the reason for which llama.cpp refuses a grammar, where it has a place.

    why is what llama.cpp says of the text; refusal returns what it says of another one, "" if it takes it.
    """
    lines = text.split("\n")
    if why == ENDED:
        return f"line {len(lines)}, column {len(lines[-1]) + 1}: {why}"
    if undefined := UNDEFINED.fullmatch(why):
        named = (word for word in _WORDS.finditer(text) if not word["defines"])
        start = next((word.start() for word in named if word["name"] == undefined["name"]), None)
        if start is None:
            return why
        before = text[:start].split("\n")
        return f"line {len(before)}, column {len(before[-1]) + 1}: {why}"
    expected = EXPECTED.fullmatch(why)
    if expected is None:
        return why

    # It reads from the beginning: what is refused stays refused in the same words whatever follows the line.
    def is_refused_by(line: int) -> bool:
        return refusal("\n".join(lines[: line + 1]) + NO_GRAMMAR) == why

    line = min(bisect_left(range(len(lines)), True, key=is_refused_by), len(lines) - 1)
    column = len(lines[line].rstrip()) - len(expected["rest"]) + 1
    return f"line {line + 1}, column {max(column, 1)}: {why}"
