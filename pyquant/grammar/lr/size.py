"""Refuse grammars of which a few letters would make more than any machine holds.

lark writes out what is optional or repeated in a rule as alternatives, which double with each further one.
So they are counted before lark works them out.
"""

from __future__ import annotations

from typing import Any

from lark import Tree
from lark.load_grammar import REPEAT_BREAK_THRESHOLD, SMALL_FACTOR_THRESHOLD

from pyquant.errors import GrammarError

MOST_ALTERNATIVES = 10_000  # of all rules together


def check_size(grammar: Any) -> None:
    """Check a grammar that lark has read and not yet worked out.

    Parameters
    ----------
    grammar : lark.load_grammar.Grammar

    Raises
    ------
    GrammarError
        Rules would become too large.
    """
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
    usages = [part for part in tree.iter_subtrees() if part.data == "template_usage"]
    return any(
        part is not usage and part.data == "template_usage"
        for usage in usages
        for part in usage.iter_subtrees()
    )
