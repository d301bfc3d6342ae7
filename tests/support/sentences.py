"""Texts of a grammar at random: its rules, taken at random, and for each terminal one of its samples."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any

from lark.lexer import PatternStr
from lark.load_grammar import load_grammar

from pyquant.generation.grammar.grammar import GRAMMARS
from pyquant.generation.grammar.lr.lark_tables import START


class Sentences:
    """A grammar's rules and the words that stand for its terminals.

    Parameters
    ----------
    name : str
        Of a grammar bundled.
    samples : dict
        Texts for each terminal that is a regular expression.
    """

    def __init__(self, name: str, samples: dict[str, list[str]]) -> None:
        loaded, _ = load_grammar((GRAMMARS / f"{name}.lark").read_text(), name, [str(GRAMMARS)], False)
        terminals, rules, _ = loaded.compile([START], set())
        self._rules: dict[str, list[list[Any]]] = defaultdict(list)
        for rule in rules:
            self._rules[rule.origin.name].append(rule.expansion)
        self._words = {
            terminal.name: [terminal.pattern.value]
            if isinstance(terminal.pattern, PatternStr)
            else samples.get(terminal.name, [])
            for terminal in terminals
        }
        self._depth: dict[str, int] = dict.fromkeys(self._words, 0)
        while len(self._depth) < len(self._words) + len(self._rules):
            known = {
                origin: 1 + min(depths)
                for origin, expansions in self._rules.items()
                if origin not in self._depth
                and (depths := [self._least(e) for e in expansions if self._known(e)])
            }
            self._depth |= known

    @property
    def words(self) -> list[str]:
        """All words that a text may have, in order."""
        return sorted({word for words in self._words.values() for word in words})

    def _known(self, expansion: list[Any]) -> bool:
        return all(symbol.name in self._depth for symbol in expansion)

    def _least(self, expansion: list[Any]) -> int:
        return max((self._depth[symbol.name] for symbol in expansion), default=0)

    def draw(self, random: Random, n_choices: int) -> list[str]:
        """Return the words of a text; after a number of choices, rules end as soon as they can."""
        words: list[str] = []
        todo = [START]
        while todo:
            symbol = todo.pop()
            if symbol in self._words:
                words.append(random.choice(self._words[symbol]))
                continue
            expansions = self._rules[symbol]
            if n_choices <= 0:
                least = min(map(self._least, expansions))
                expansions = [e for e in expansions if self._least(e) == least]
            n_choices -= len(expansions) > 1
            todo += [part.name for part in reversed(random.choice(expansions))]
        return words
