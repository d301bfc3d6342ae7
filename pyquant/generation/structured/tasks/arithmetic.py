"""Rewrite a product as other expressions that are equal to it: García Casasola's task, with many products.

A comparison is expressions joined by `==`; expressions are sums and differences of products and quotients of
factors; a factor is a number, a negated factor or a comparison in parentheses. Blanks are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any

from lark import Lark
from lark.exceptions import LarkError

from pyquant.generation.grammar.grammar import GRAMMARS, read_grammar
from pyquant.generation.structured.task import Item, Verdict

GRAMMAR = read_grammar(GRAMMARS / "arithmetic.lark")
FACTORS = [(9, 15), (7, 8), (12, 11), (6, 25), (14, 3), (16, 5), (13, 4), (18, 6), (21, 9), (17, 2)]
FACTORS += [(8, 32), (19, 7), (24, 10), (11, 11), (27, 3), (45, 2), (33, 6), (15, 15), (28, 4), (36, 5)]


class Arithmetic:
    """The task; see the module."""

    name = "arithmetic"
    instruction = (
        "Rewrite the product as other expressions that are equal to it, joined by ==. Expressions have whole "
        "numbers, +, -, *, / and parentheses."
    )
    form = GRAMMAR.text
    engine = "llguidance"
    needs: Sequence[str] = ()
    examples: Sequence[tuple[str, str]] = (
        ("4 * 12", "4 * 12 == 48 == 40 + 8"),
        ("5 * 6", "5 * 6 == 30 == 6 * 5 == 60 / 2"),
        ("3 * 14", "3 * 14 == 3 * (10 + 4) == 42"),
    )
    items: Sequence[Item] = tuple(Item(f"{a} * {b}", f"{a} * {b}", GRAMMAR, a * b) for a, b in FACTORS)

    def check(self, item: Item, answer: str) -> Verdict:
        """Parse an answer, compute its sides, and compare them with the product.

        A single `=` counts as `==`. What is right has a side besides the question itself.
        """
        answer = re.sub(r"(?<!=)=(?!=)", "==", answer.strip())
        try:
            tree: Any = _parser().parse(answer)
        except LarkError:
            return Verdict()
        try:
            sides = [_value(side) for side in tree.children[0].children]
        except (ArithmeticError, TypeError, RecursionError):
            return Verdict(parses=True)
        # A side has to say more than the question: compared without blanks, for a model may write none.
        texts = [side.replace(" ", "") for side in answer.split("==")]
        rewrites = any(text != item.question.replace(" ", "") for text in texts)
        right = rewrites and all(side == item.expected for side in sides)
        return Verdict(parses=True, evaluates=True, right=right)


@cache
def _parser() -> Lark:
    return Lark(GRAMMAR.text, parser="lalr")


def _value(tree: Any) -> Fraction:
    """Compute an expression. Raises TypeError where a truth is computed with."""
    values = tree.children
    if tree.data == "number":
        return Fraction(values[0])
    if tree.data == "negate":
        return -_value(values[0])
    if tree.data == "comparison":
        if len(values) > 1:
            raise TypeError("a comparison is no number")
        return _value(values[0])
    if len(values) == 1:
        return _value(values[0])
    left, right = map(_value, values)
    return _OPERATIONS[tree.data](left, right)


_OPERATIONS = {
    "add": Fraction.__add__,
    "subtract": Fraction.__sub__,
    "multiply": Fraction.__mul__,
    "divide": Fraction.__truediv__,
}

TASK = Arithmetic()
