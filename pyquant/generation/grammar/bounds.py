"""Refuse grammars that would end the process: engines go as deep into themselves as a grammar goes."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote

from pyquant.errors import GrammarError
from pyquant.generation.grammar.grammar import Grammar, Language

MOST_RULES = 1000  # each may name the next; engine lr takes time with their square
MOST_DIGITS = 9  # of a repetition's or a token's number; llama.cpp reads 19 or 20, and repeats 2,000 times
DEEPEST = 500  # of parentheses, and of a schema with what its references name

# A rule's beginning, after which no line of GBNF or Lark has another one.
_RULE = {
    Language.LARK: re.compile(r"^[ \t]*[?!]*\w[^\n:\"/]*:", re.MULTILINE),
    Language.GBNF: re.compile(r"::="),
}
# Literals, classes and comments of GBNF, in which nothing else counts: what is not closed goes on to the end.
QUOTED = r'"(?:\\(?:.|\Z)|[^"\\])*(?:"|\Z)|\[(?:\\(?:.|\Z)|[^\]\\])*(?:\]|\Z)|#[^\n]*'
# These, or parentheses, repetitions, tokens.
_GBNF = re.compile(
    QUOTED + r"|(?P<open>\()|(?P<close>\))|"
    r"\{\s*(?P<least>\d+)\s*,\s*(?P<most>\d+)\s*\}|\{[\s\d,]*\}|<\[\d+\]>",
    re.DOTALL,
)
_NUMBER = re.compile(r"\d+")


def check_bounds(grammar: Grammar) -> None:
    """Refuse a grammar of too many rules, or that is nested too deeply.

    Raises
    ------
    GrammarError
        It is; or a repetition of GBNF has less at most than at least, which llama.cpp counts for ever.
    """
    rule = _RULE.get(grammar.language)
    if rule and (n_rules := len(rule.findall(grammar.text))) > MOST_RULES:
        raise GrammarError(f"{grammar.name}: of {n_rules:,} rules; engines take up to {MOST_RULES:,}")
    if grammar.language is Language.GBNF:
        _check_gbnf(grammar)
    if grammar.language is Language.JSON_SCHEMA:
        _check_schema(grammar)


def _check_gbnf(grammar: Grammar) -> None:
    depth = 0
    for part in _GBNF.finditer(grammar.text):
        depth += bool(part["open"]) - bool(part["close"])
        if depth > DEEPEST:
            raise _too_deep(grammar)
        if part[0][0] in "{<":
            _check_counts(grammar, part)


def _check_counts(grammar: Grammar, part: re.Match[str]) -> None:
    line = grammar.text.count("\n", 0, part.start()) + 1
    if any(len(number) > MOST_DIGITS for number in _NUMBER.findall(part[0])):
        raise GrammarError(
            f"{grammar.name}: line {line}: a number of more than {MOST_DIGITS} digits in {part[0][:24]}..."
        )
    if part["least"] and int(part["most"]) < int(part["least"]):
        raise GrammarError(f"{grammar.name}: {part[0]}: less at most than at least")


def _too_deep(grammar: Grammar) -> GrammarError:
    return GrammarError(f"{grammar.name}: is nested too deeply: more than {DEEPEST} levels")


def _check_schema(grammar: Grammar) -> None:
    try:
        depth = _Depth(json.loads(grammar.text)).at_most()
    except RecursionError:
        raise _too_deep(grammar) from None
    except ValueError:  # the engine says where it is no JSON
        return
    if depth > DEEPEST:
        raise _too_deep(grammar)


class _Depth:
    """Counts how deep a schema goes, where references lead as well; what leads to itself is not followed."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._known: dict[str, int] = {}
        self._n_unknown = 0  # references whose place is not found: each may lead one level deeper

    def of(self, node: Any) -> int:
        """Count the levels of a part of the schema."""
        if isinstance(node, dict):
            to = node.get("$ref")
            inner = [self._referred(to)] if isinstance(to, str) else []
            return 1 + max([*inner, *map(self.of, node.values())], default=0)
        if isinstance(node, list):
            return 1 + max(map(self.of, node), default=0)
        return 0

    def at_most(self) -> int:
        """Count the levels of the whole."""
        return self.of(self._schema) + self._n_unknown

    def _referred(self, to: str) -> int:
        if to not in self._known:
            self._known[to] = 0
            self._known[to] = self.of(self._find(to))
        return self._known[to]

    def _find(self, to: str) -> Any:
        """Give what a JSON pointer behind # names."""
        node = self._schema
        _, mark, pointer = to.partition("#")
        for key in unquote(pointer).split("/")[1:]:
            key = key.replace("~1", "/").replace("~0", "~")
            if isinstance(node, list) and key.isdecimal() and int(key) < len(node):
                node = node[int(key)]
            elif isinstance(node, dict) and key in node:
                node = node[key]
            else:  # the engine says so, or has its own way to it
                self._n_unknown += 1
                return None
        if node is self._schema and (pointer or not mark):  # the name of an anchor, or of another schema
            self._n_unknown += 1
            return None
        return node
