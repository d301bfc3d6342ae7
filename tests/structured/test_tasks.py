"""Tasks: their examples keep to their grammars, and their checks cannot be fooled."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from pyquant import data
from pyquant.errors import ConfigError
from pyquant.grammar.engines import make_engine
from pyquant.llama.model import Model
from pyquant.llama.vocabulary import Vocabulary
from pyquant.structured.task import TECHNIQUES, Item, Verdict, as_text, messages
from pyquant.structured.tasks import TASKS, load_task

RIGHT = Verdict(parses=True, evaluates=True, right=True)


@pytest.fixture(scope="module")
def vocabulary() -> Iterator[Vocabulary]:
    with Model(data.model_path()) as model:
        yield model.vocabulary


def ask(task: str, question: str, expected: object) -> tuple[object, Item]:
    loaded = load_task(task)
    return loaded, Item("x", question, loaded.items[0].grammar, expected)


@pytest.mark.parametrize("name", TASKS)
def test_examples_keep_to_the_grammar(name: str, vocabulary: Vocabulary) -> None:
    task = load_task(name)
    assert len(task.examples) == 3
    assert len({item.name for item in task.items}) == len(task.items) == 20
    compiled = make_engine("llguidance", vocabulary).compile(task.items[0].grammar)
    for _, answer in task.examples:
        state = compiled.start()
        for token in vocabulary.tokenize(answer.encode(), ends=False).tolist():
            state.advance(token)
        assert state.may_end
        verdict = task.check(task.items[0], answer)
        assert (verdict.parses, verdict.evaluates) == (True, True)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("9 * 15 == 135", RIGHT),
        ("9*15=135=100+35", RIGHT),  # a single = counts as ==
        ("(9 * (10 + 5)) == -(-135)", RIGHT),
        ("270 / 2", RIGHT),
        ("9 * 15", Verdict(parses=True, evaluates=True)),  # says nothing new
        ("9 * 15 == 134", Verdict(parses=True, evaluates=True)),
        ("45 * 4 == 180", Verdict(parses=True, evaluates=True)),  # equal, but not what was asked
        ("9 * 15 == 135 / 0", Verdict(parses=True)),
        ("9 * 15 == (1 == 1) + 134", Verdict(parses=True)),  # a truth is no number
        ("9 * 15 == ", Verdict()),
        ("The answer is 135", Verdict()),
        ("", Verdict()),
        ("__import__('os')", Verdict()),
        ("9 ** 999999999", Verdict()),
    ],
)
def test_arithmetic_is_checked(answer: str, verdict: Verdict) -> None:
    task, item = ask("arithmetic", "9 * 15", 135)
    assert task.check(item, answer) == verdict


def test_deep_arithmetic_is_no_traceback() -> None:
    task, item = ask("arithmetic", "9 * 15", 135)
    assert task.check(item, "(" * 50_000 + "135" + ")" * 50_000) in (Verdict(parses=True), RIGHT)


CALL = {"function": "set_timer", "arguments": {"minutes": 10, "label": "tea"}}


@pytest.mark.parametrize(
    ("call", "verdict"),
    [
        (CALL, RIGHT),
        ({**CALL, "arguments": {"minutes": 10, "label": "Tea."}}, RIGHT),
        ({**CALL, "arguments": {"minutes": 11, "label": "tea"}}, Verdict(parses=True, evaluates=True)),
        ({**CALL, "arguments": {"minutes": "10", "label": "tea"}}, Verdict(parses=True)),
        ({**CALL, "arguments": {"minutes": True, "label": "tea"}}, Verdict(parses=True)),
        ({**CALL, "arguments": {"minutes": 10}}, Verdict(parses=True)),
        ({**CALL, "more": 1}, Verdict(parses=True)),
        ({"function": ["set_timer"], "arguments": {}}, Verdict(parses=True)),
        ([], Verdict(parses=True)),
    ],
)
def test_calls_are_checked(call: object, verdict: Verdict) -> None:
    task, item = ask("function_call", "Set a timer of 10 minutes called tea.", CALL)
    assert task.check(item, json.dumps(call)) == verdict


@pytest.mark.parametrize("answer", ["", "{", "[" * 100_000, '{"function": '])
def test_what_is_no_json_does_not_parse(answer: str) -> None:
    task, item = ask("function_call", "x", CALL)
    assert task.check(item, answer) == Verdict()


def test_techniques_differ_in_what_they_show() -> None:
    task = load_task("arithmetic")
    item = task.items[0]
    shown = {technique: messages(task, item, technique) for technique in TECHNIQUES}
    assert [len(shown[technique]) for technique in TECHNIQUES] == [2, 4, 8, 2]
    assert "%ignore" in shown["grammar in the prompt"][0]["content"]
    assert all(turns[-1] == {"role": "user", "content": "9 * 15"} for turns in shown.values())
    assert as_text(shown["grammar"]).endswith(
        "\nQuestion: 4 * 12\nAnswer: 4 * 12 == 48 == 40 + 8\nQuestion: 9 * 15\nAnswer: "
    )


def test_there_is_no_other_task() -> None:
    with pytest.raises(ConfigError, match="task: expected one of arithmetic, function_call, got 'x'"):
        load_task("x")
