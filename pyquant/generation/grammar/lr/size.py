"""Refuse grammars of which a few letters would make more than any machine holds.

lark writes out what is optional or repeated in a rule as alternatives, which double with each further one.
It puts terminals into the terminals that name them, which may double with each further one as well. So both
are counted before lark works them out.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lark.load_grammar
from lark import Tree
from lark.grammar import Terminal
from lark.load_grammar import REPEAT_BREAK_THRESHOLD, SMALL_FACTOR_THRESHOLD

from pyquant.errors import GrammarError

MOST_ALTERNATIVES = 10_000  # of all rules together
MOST_LETTERS = 30_000  # of a terminal, with those that it names
_one_at_a_time = threading.Lock()


@contextmanager
def bounded_terminals() -> Iterator[None]:
    """Let lark check the size of terminals before it puts them into each other, while it reads a grammar.

    That happens in a function of lark's own module, for the grammar and for all that it imports. Raises
    GrammarError where a terminal would become too large.
    """
    put_together = lark.load_grammar.resolve_term_references

    def checked(terminals: dict[str, Any]) -> None:
        known: dict[int, int] = {}
        for name, tree in terminals.items():
            if _letters(tree, terminals, known) > MOST_LETTERS:
                raise GrammarError(
                    f"terminal {name}: with the terminals that it names it has more than "
                    f"{MOST_LETTERS:,} letters"
                )
        put_together(terminals)

    with _one_at_a_time:
        lark.load_grammar.resolve_term_references = checked
        try:
            yield
        finally:
            lark.load_grammar.resolve_term_references = put_together


def _letters(part: Any, terminals: dict[str, Any], known: dict[int, int]) -> int:
    """Count what a part of a terminal becomes; beyond MOST_LETTERS only that. Circles are left to lark."""
    if isinstance(part, Terminal):
        part = terminals.get(part.name)
    if not isinstance(part, Tree):
        return len(part) if isinstance(part, str) else 0
    if id(part) not in known:
        known[id(part)] = 0
        total = sum(_letters(child, terminals, known) for child in part.children)
        known[id(part)] = min(total, MOST_LETTERS + 1)
    return known[id(part)]


def check_size(grammar: Any) -> None:
    """Check lark's Grammar, not yet worked out. Raises GrammarError where rules would become too large."""
    total = 0
    for name, parameters, tree, _ in grammar.rule_defs:
        total += _alternatives(tree)
        if total > MOST_ALTERNATIVES:
            raise GrammarError(
                f"rule {name}: with all that is optional or repeated written out, rules have more than "
                f"{MOST_ALTERNATIVES:,} alternatives; make rules of its parts"
            )
        if parameters and _has_nested_template(tree):
            raise GrammarError(f"template {name}: an argument is a template itself; make a rule of it")


def _alternatives(tree: Any) -> int:
    """Count the alternatives that lark makes of a part of a rule; beyond MOST_ALTERNATIVES only that."""
    if not isinstance(tree, Tree) or tree.data in ("literal", "range", "template_usage"):
        return 1
    counts = (_alternatives(part) for part in tree.children if isinstance(part, Tree))
    if tree.data == "expr":
        n = _repeated(next(counts), [str(part) for part in tree.children[1:]])
    elif tree.data == "expansion":
        n = 1
        for count in counts:
            n = min(n * count, MOST_ALTERNATIVES + 1)
    else:
        n = max(sum(counts), 1) + (tree.data == "maybe")
    return min(n, MOST_ALTERNATIVES + 1)


def _repeated(n: int, operator: list[str]) -> int:
    if operator[0] != "~":  # what is repeated becomes a rule of its own
        return {"?": n + 1, "*": 2 * n + 1, "+": 2 * n}[operator[0]]
    least, most = int(operator[1]), int(operator[-1])
    if most >= REPEAT_BREAK_THRESHOLD:
        return int(n**SMALL_FACTOR_THRESHOLD)
    return sum(n**times for times in range(least, most + 1))


def _has_nested_template(tree: Any) -> bool:
    usages = list(tree.find_data("template_usage"))
    return any(part is not usage for usage in usages for part in usage.find_data("template_usage"))
