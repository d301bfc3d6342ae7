"""Look into the literals of a grammar in Lark's language, without the package lark."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyquant.errors import GrammarError
from pyquant.generation.grammar.grammar import Grammar

# Strings, comments, regular expressions; and the names of rules and terminals where they begin.
_WORDS = re.compile(
    r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/(?P<regex>(?:\\.|[^/\\\n])+)/[imslux]*|'
    r"^[ \t]*[?!]*(?P<name>\w+)[^\n:\"/]*:",
    re.MULTILINE,
)
# Escapes, classes, and repetitions of which a lazy one is more than a question mark behind another sign.
_PARTS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?:[*+?]|\{\d*,?\d*\})(?P<lazy>\??)", re.DOTALL)

# In a class: operators of Rust's classes, which in Lark's are signs as any other.
_OPERATORS = re.compile(r"\[|&&|--|~~")


def check_classes(grammar: Grammar) -> None:
    """Refuse what llguidance reads as Rust's classes in classes, which Lark reads sign by sign.

    Raises GrammarError, which names the terminal or rule and says what to write.
    """
    for name, line, pattern in _regexes(grammar.text):
        for part in _PARTS.finditer(pattern):
            inside = re.sub(r"\\.", "", part[0][1:], flags=re.DOTALL) if part[0][0] == "[" else ""
            if operator := _OPERATORS.search(inside):
                escaped = "".join(f"\\{sign}" for sign in operator[0])
                raise GrammarError(
                    f"{grammar.name}: line {line}: {name}: /{pattern}/ has {operator[0]} in a class, which "
                    f"engine llguidance reads as Rust's operators; write {escaped}, or give --engine lr"
                )


def check_lazy(grammar: Grammar) -> None:
    """Refuse lazy repetitions, which llguidance reads as others: what follows could never come.

    Raises GrammarError, which names the terminal or rule and says what to write.
    """
    for name, line, pattern in _regexes(grammar.text):
        if any(part["lazy"] for part in _PARTS.finditer(pattern)):
            raise GrammarError(
                f"{grammar.name}: line {line}: {name}: /{pattern}/ has a lazy repetition, which engine "
                f'llguidance does not take; say what may not come, as /"[^"]*"/ does, or give --engine lr'
            )


def _regexes(text: str) -> Iterator[tuple[str, int, str]]:
    """Yield each regular expression with the name of what it is in, and its line."""
    name = ""
    for word in _WORDS.finditer(text):
        if word["name"]:
            name = word["name"]
        elif word["regex"]:
            yield name, text.count("\n", 0, word.start()) + 1, word["regex"]
