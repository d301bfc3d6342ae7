"""Regular expressions of terminals as one automaton over bytes, in which several states may hold at once."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, field
from typing import Any

from pyquant.errors import GrammarError
from pyquant.generation.grammar.lr.characters import Range, characters_of, utf8
from pyquant.generation.grammar.lr.lazy_repetitions import may_end_later

# The standard library's own reader of regular expressions; it has no public name.
_reader: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
MOST_STATES = 30_000

_REFUSED = {
    "ASSERT": "look-around",
    "ASSERT_NOT": "look-around",
    "AT": "anchors",
    "GROUPREF": "references to groups",
    "GROUPREF_EXISTS": "references to groups",
    "POSSESSIVE_REPEAT": "possessive repetition",
    "ATOMIC_GROUP": "atomic groups",
}


@dataclass
class RegexAutomaton:
    """States, numbered from 0; lists have what belongs to each, `begins` and `ends` to each terminal."""

    edges: list[list[tuple[int, int, int]]] = field(default_factory=list)  # first byte, last byte, next state
    free: list[list[int]] = field(default_factory=list)  # states that hold as well
    terminal: list[int] = field(default_factory=list)  # that the state belongs to
    begins: list[int] = field(default_factory=list)  # the first state
    ends: list[int] = field(default_factory=list)  # the last state
    shortest: set[int] = field(default_factory=set)  # terminals that end as soon as they can

    def add(self, regex: str) -> None:
        """Add a terminal that Python's re takes. Raises GrammarError for what an automaton cannot do."""
        parsed = _reader.parse(regex)
        begin = self._state()
        self.begins.append(begin)
        self.ends.append(self._items(parsed, begin, parsed.state.flags, regex))
        if may_end_later(parsed):
            raise GrammarError(
                f"/{regex}/: a lazy repetition ends a terminal as soon as it can, and re may end this one "
                "later; take a greedy repetition of less, such as [^x]* before x"
            )

    def _state(self) -> int:
        if len(self.edges) == MOST_STATES:
            raise GrammarError("terminals are too large: is there a repetition of a great number of times?")
        self.edges.append([])
        self.free.append([])
        self.terminal.append(len(self.begins) - (len(self.begins) > len(self.ends)))
        return len(self.edges) - 1

    def _items(self, items: Any, state: int, flags: int, regex: str) -> int:
        """Add what items match, from a state; return the state after it."""
        for operation, argument in items:
            state = self._item(str(operation), argument, state, flags, regex)
        return state

    def _item(self, operation: str, argument: Any, state: int, flags: int, regex: str) -> int:
        if operation == "BRANCH":
            end = self._state()
            for items in argument[1]:
                self.free[self._items(items, state, flags, regex)].append(end)
            return end
        if operation == "SUBPATTERN":
            _, added, removed, items = argument
            return self._items(items, state, (flags | added) & ~removed, regex)
        if operation in ("MAX_REPEAT", "MIN_REPEAT"):
            if operation == "MIN_REPEAT":
                self.shortest.add(len(self.begins) - 1)
            least, most, items = argument
            return self._repeat(least, most, items, state, flags, regex)
        if operation in _REFUSED:
            raise GrammarError(f"/{regex}/: {_REFUSED[operation]} cannot be matched byte by byte")
        return self._one_of(characters_of(operation, argument, flags), state)

    def _repeat(self, least: int, most: Any, items: Any, state: int, flags: int, regex: str) -> int:
        for _ in range(least):
            state = self._items(items, state, flags, regex)
        end = self._state()
        if most is _reader.MAXREPEAT:
            again = self._state()
            self.free[state].append(again)
            self.free[again].append(end)
            self.free[self._items(items, again, flags, regex)].append(again)
            return end
        self.free[state].append(end)
        for _ in range(most - least):
            state = self._items(items, state, flags, regex)
            self.free[state].append(end)
        return end

    def _one_of(self, ranges: list[Range], state: int) -> int:
        end = self._state()
        for first, last in ranges:
            for sequence in utf8(first, last):
                here = state
                for i, (low, high) in enumerate(sequence):
                    there = end if i == len(sequence) - 1 else self._state()
                    self.edges[here].append((low, high, there))
                    here = there
        return end
