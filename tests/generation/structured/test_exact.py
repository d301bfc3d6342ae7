"""Exact answers beside those under masks."""

from __future__ import annotations

import json

import pytest

from pyquant import data
from pyquant.generation.grammar.grammar import Grammar, Language
from pyquant.generation.structured.exact import measure_exact
from pyquant.generation.structured.task import Item
from tests.support.bad_task import BadTask
from tests.support.command import run


class Small(BadTask):
    """Two short answers: what a model generates of both can be counted."""

    name = "small"
    instruction, form, examples = "Write 1 or 2.", "1 | 2", (("x", "1"),) * 3
    items = tuple(Item(name, name, Grammar(Language.REGEX, "[12]"), {}) for name in ("a", "b"))


def test_both_ways_answer_the_same_questions() -> None:
    (cell,) = measure_exact([data.model_path()], Small(), n=5, max_tokens=2, most_attempts=3000)
    assert [answer.item for answer in cell.masked] == ["a"] * 3 + ["b"] * 2
    assert [answer.item for answer in cell.exact] == ["a"] * 3 + ["b"] * 2
    for answer in [*cell.masked, *cell.exact]:
        assert answer.text in ("1", "2")
        assert not answer.cut_off
    written = cell.to_json()
    assert written["refused"] == 0
    assert written["attempts_per_text"] >= 1
    assert written["exact"]["scores"]["parses"]["share"] == 1


def test_completions_that_are_refused_are_told() -> None:
    (cell,) = measure_exact([data.model_path()], Small(), n=2, max_tokens=2, most_attempts=1)
    written = cell.to_json()
    assert written["refused"] == 2 - len(cell.exact)
    assert written["attempts_per_text"] == 1


@pytest.mark.ci
@pytest.mark.parametrize("option", [[], ["--json"]])
def test_the_command_shows_both(option: list[str]) -> None:
    arguments = ["-n", 1, "--length", 3, "--technique", "free", "--exact", 1]
    done = run("structured", data.model_path(), *arguments, *option)
    assert done.returncode == 0, done.stderr
    if option:
        (cell,) = json.loads(done.stdout)["exact"]
        assert (cell["n"], cell["max_tokens"]) == (1, 3)
    else:
        assert "attempts" in done.stdout
