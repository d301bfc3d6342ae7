"""Regular expressions of terminals as one automaton over bytes, in which several states may hold at once."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pyquant.errors import GrammarError
from pyquant.generation.grammar.lr.characters import Range, both_cases, category, complement, union, utf8

# The standard library's own reader of regular expressions; it has no public name.
_reader: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
MOST_STATES = 30_000
_SINGLE = ("LITERAL", "NOT_LITERAL", "IN", "ANY")  # what matches one character

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
        if _ends_elsewhere(parsed):
            raise GrammarError(
                f"/{regex}/: a lazy repetition ends the terminal as soon as it can, so what follows it has "
                "to be of one length; take a greedy repetition of less, such as [^x]* before x"
            )
        begin = self._state()
        self.begins.append(begin)
        self.ends.append(self._items(parsed, begin, parsed.state.flags, regex))

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
        return self._one_of(_characters(operation, argument, flags), state)

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


def _ends_elsewhere(items: Any) -> bool:
    """Say whether re may end a terminal with a lazy repetition elsewhere than at the first possible place.

    It does not where lazy repetitions are of single characters, only these and more such repetitions follow
    the first of them, and no part of several lengths before it takes the character that follows.
    """
    parts = list(_flat(items))
    lazy = [i for i, (name, _) in enumerate(parts) if name == "MIN_REPEAT"]
    if not lazy:
        return any(_has_lazy(part) for part in parts)
    behind = [part for part in parts[lazy[0] :] if part[0] != "MIN_REPEAT"]
    if any(name not in _SINGLE for name, _ in behind):
        return True
    if any(parts[i][1][2].getwidth() != (1, 1) or any(map(_has_lazy, _flat(parts[i][1][2]))) for i in lazy):
        return True
    varying = [part for part in parts[: lazy[0]] if part[0] not in _SINGLE]
    return any(_may_take(part, behind[:1]) for part in varying)


def _flat(items: Any) -> Iterator[tuple[str, Any]]:
    """Give operations and their arguments; of groups, what is in them."""
    for operation, argument in items:
        if str(operation) == "SUBPATTERN":
            yield from _flat(argument[3])
        else:
            yield str(operation), argument


def _has_lazy(part: tuple[str, Any]) -> bool:
    name, argument = part
    if name == "BRANCH":
        return any(_has_lazy(inner) for items in argument[1] for inner in _flat(items))
    return name == "MIN_REPEAT" or (name == "MAX_REPEAT" and any(map(_has_lazy, _flat(argument[2]))))


def _may_take(part: tuple[str, Any], following: list[tuple[str, Any]]) -> bool:
    """Say whether a repetition may take a character that one of `following` matches; of others, it may."""
    name, argument = part
    items = list(_flat(argument[2])) if name == "MAX_REPEAT" else []
    if len(items) != 1 or items[0][0] not in _SINGLE:
        return True
    taken, *others = ([*_characters(*each, re.IGNORECASE | re.DOTALL)] for each in (*items, *following))
    return any(a <= d and c <= b for a, b in taken for ranges in others for c, d in ranges)


def _characters(operation: str, argument: Any, flags: int) -> list[Range]:
    if operation == "ANY":
        return complement([] if flags & re.DOTALL else [(10, 10)])
    if operation == "NOT_LITERAL":
        return complement(_cases([(argument, argument)], flags))
    if operation == "LITERAL":
        return _cases([(argument, argument)], flags)
    negated = str(argument[0][0]) == "NEGATE"
    ranges: list[Range] = []
    for kind, value in argument[negated:]:
        if str(kind) == "CATEGORY":
            ranges += _category(str(value), flags)
        else:
            ranges += _cases([value if str(kind) == "RANGE" else (value, value)], flags)
    return complement(ranges) if negated else union(ranges)


def _cases(ranges: list[Range], flags: int) -> list[Range]:
    return both_cases(ranges) if flags & re.IGNORECASE else ranges


def _category(name: str, flags: int) -> list[Range]:
    letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[name.rsplit("_", 1)[1]]
    ranges = list(category(letter))
    if flags & re.ASCII:
        ranges = [(first, min(last, 127)) for first, last in ranges if first < 128]
    return complement(ranges) if "_NOT_" in name else ranges
