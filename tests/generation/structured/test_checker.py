"""A check that hangs, eats memory or fails is an error of its answer, and of no other."""

from __future__ import annotations

import time

import pytest

from pyquant.generation.grammar.grammar import Grammar, Language
from pyquant.generation.structured.checker import Checker
from pyquant.generation.structured.task import Item, Verdict
from pyquant.generation.structured.tasks import load_task
from tests.support.bad_task import BadTask

ITEM = Item("x", "x", Grammar(Language.REGEX, "x"), None)
FINE = (Verdict(parses=True), "")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("hang", "the check took more than 1 s"),
        ("hang below", "the check took more than 1 s"),
        ("eat", "the check needs too much memory"),
        ("fail", "RuntimeError: no idea"),
        ("end", "the check ended its process"),
        ("say yes", "TypeError: check gives bool, and no Verdict"),
    ],
)
def test_a_bad_check_is_an_error_of_its_answer(answer: str, message: str) -> None:
    with Checker(BadTask(), seconds=1, memory=1 << 30) as checker:
        assert checker.check(ITEM, "fine") == FINE
        begin = time.monotonic()
        assert checker.check(ITEM, answer) == (Verdict(), message)
        assert time.monotonic() - begin < 20
        assert checker.check(ITEM, "fine") == FINE


def test_tasks_in_the_box_are_checked_there() -> None:
    task = load_task("arithmetic")
    with Checker(task) as checker:
        verdict, error = checker.check(task.items[0], "9 * 15 == 135")
    assert (verdict.right, error) == (True, "")
