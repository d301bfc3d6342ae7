"""Refuse grammars in which the next terminal does not decide, or that a parser would follow without end."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

from lark.parsers.lalr_analysis import LALR_Analyzer

from pyquant.errors import GrammarError


def check_conflicts(analyzer: LALR_Analyzer) -> None:
    """Raise GrammarError, with an example, where the next terminal does not decide in a state."""
    (first,) = analyzer.lr0_start_states.values()
    ways: dict[Any, list[str]] = {first: []}
    todo = deque([first])
    while todo:
        state = todo.popleft()
        for symbol, following in state.transitions.items():
            if following not in ways:
                ways[following] = [*ways[state], symbol.name]
                todo.append(following)
        for terminal, rules in sorted(state.lookaheads.items(), key=lambda item: str(item[0].name)):
            choices = [f"end {rule}" for rule in sorted(rules, key=str)]
            if terminal in state.transitions:
                choices.append("go on")
            if len(choices) > 1:
                way = " ".join(ways[state]) or "nothing"
                raise GrammarError(
                    f"it is not LALR(1): after {way}, at {terminal.name}, one may {' or '.join(choices)}; "
                    "make it one, let the parser follow all ways by `%declare AMBIGUOUS`, "
                    "or use --engine llguidance"
                )


def check_endless(rules: list[Any]) -> None:
    """Refuse a grammar, of rules as lark has them, that has stacks without number at a place.

    There are where a rule is nothing but itself, and where a rule begins with itself after rules that are
    empty, as those could stand there any number of times.

    Raises
    ------
    GrammarError
        A rule does one or the other.
    """
    empty = made_of(rules, set())
    begins: dict[str, set[str]] = defaultdict(set)
    hidden: set[tuple[str, str]] = set()  # a rule and one that it begins with after empty ones
    alone: dict[str, set[str]] = defaultdict(set)
    for rule in rules:
        origin, names = rule.origin.name, [symbol.name for symbol in rule.expansion]
        for i, name in enumerate(names):
            if all(other in empty for other in names[:i] + names[i + 1 :]):
                alone[origin].add(name)
            if all(other in empty for other in names[:i]):
                begins[origin].add(name)
                if i > 0:
                    hidden.add((origin, name))
    for origin in sorted(begins):
        if origin in _reached(alone, origin):
            raise GrammarError(
                f"rule {origin} may be nothing but itself: a parser would follow it without end"
            )
    for origin, name in sorted(hidden):
        if origin == name or origin in _reached(begins, name):
            raise GrammarError(
                f"rule {origin} may begin with itself after rules that are empty: a parser would follow it "
                "without end"
            )


def made_of(rules: list[Any], names: set[str]) -> set[str]:
    """Return the names of rules that may be made of these names alone; of none: rules that may be empty."""
    made: set[str] = set()
    while True:
        known = made | names
        more = {rule.origin.name for rule in rules if all(symbol.name in known for symbol in rule.expansion)}
        if more <= made:
            return made
        made |= more


def _reached(graph: dict[str, set[str]], name: str) -> set[str]:
    seen: set[str] = set()
    todo = [name]
    while todo:
        new = graph.get(todo.pop(), set()) - seen
        seen |= new
        todo += new
    return seen
