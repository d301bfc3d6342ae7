"""`pyquant structured`: cells, lengths as beginnings, the same seeds for all models."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyquant import data
from pyquant.errors import ConfigError
from pyquant.generation.grammar.grammar import Grammar, Language
from pyquant.generation.sampling.result import CONTEXT, DEAD_END, END, LENGTH, Sample
from pyquant.generation.structured.answers import answer_of, count
from pyquant.generation.structured.checker import Checker
from pyquant.generation.structured.measure import StructuredResult, check_at, measure_structured
from pyquant.generation.structured.task import TECHNIQUES, Item, Verdict
from pyquant.generation.structured.tasks import load_task
from pyquant.llama.model import Model
from tests.support.bad_task import BadTask
from tests.support.command import run

TASK = load_task("arithmetic")


@pytest.fixture(scope="module")
def result() -> StructuredResult:
    models = [data.model_path(), data.model_path()]
    return measure_structured(models, TASK, techniques=["free", "grammar"], lengths=[12, 4], n=5)


def test_there_is_a_cell_for_each_model_technique_and_length(result: StructuredResult) -> None:
    cells = [(cell.technique, cell.max_tokens) for cell in result.cells]
    assert cells == 2 * [("free", 4), ("free", 12), ("grammar", 4), ("grammar", 12)]
    assert all(len(cell.answers) == 5 for cell in result.cells)


def test_shorter_completions_are_beginnings(result: StructuredResult) -> None:
    for short, long in zip(result.cells[::2], result.cells[1::2]):
        assert all(b.text.startswith(a.text) for a, b in zip(short.answers, long.answers))
        assert any(a.text != b.text for a, b in zip(short.answers, long.answers))


def test_the_same_model_writes_the_same(result: StructuredResult) -> None:
    first, second = result.cells[:4], result.cells[4:]
    assert [cell.answers for cell in first] == [cell.answers for cell in second]
    p_values = [
        score["p_value"]
        for cell in result.to_json()["cells"]
        for score in cell["scores"].values()
        if "p_value" in score
    ]
    assert p_values == []  # one file twice is one model: there is nothing to test


def test_a_grammar_takes_probability_away(result: StructuredResult) -> None:
    removed = {
        cell["technique"]: (cell["removed"], cell["removed_text"]) for cell in result.to_json()["cells"]
    }
    assert removed["free"] == (None, None)
    of_token, of_text = removed["grammar"]
    assert 0 < of_token < of_text < 1  # a completion is kept only if all its tokens are
    parsed = {cell.technique: cell.n("parses") for cell in result.cells if cell.max_tokens == 12}
    assert parsed["grammar"] > parsed["free"]


def test_it_is_told_where_time_and_memory_go(result: StructuredResult) -> None:
    for cell in result.to_json()["cells"]:
        parts = cell["forward_seconds"] + cell["sampling_seconds"]
        assert 0.3 * cell["seconds_per_text"] < parts <= cell["seconds_per_text"]
        assert (cell["mask_seconds"] > 0) == (cell["technique"] != "free")
        assert cell["peak_memory"] > 10 << 20
        assert cell["errors"] == 0


def test_checks_that_fail_are_counted() -> None:
    task = BadTask()
    with Checker(task) as checker:
        samples = [Sample(0, "x", i, data=b"") for i in range(2)]
        vocabulary = SimpleNamespace(pieces=lambda: (b"fail", b"fine"))
        for sample in samples:
            sample.tokens, sample.log_p, sample.allowed = [sample.number], [0.0], [0.5]
        item = Item("x", "x", Grammar(Language.REGEX, "x"), None)
        answers = [answer_of(sample, item, 5, 0, vocabulary, checker.check) for sample in samples]
    assert [answer.error for answer in answers] == ["RuntimeError: no idea", ""]
    counted = count(answers, None)
    assert (counted["errors"], counted["scores"]["parses"]["n"], counted["removed"]) == (1, 1, 0.5)


def test_a_text_is_checked_once_at_all_lengths() -> None:
    asked: list[tuple[str, str]] = []

    def check(item: Item, text: str) -> tuple[Verdict, str]:
        asked.append((item.name, text))
        return Verdict(), ""

    samples = [Sample(0, "x", i, tokens=[i] * n, log_p=[0.0] * n, finish=END) for i, n in enumerate((1, 3))]
    model = SimpleNamespace(vocabulary=SimpleNamespace(pieces=lambda: (b"a", b"b")))
    found = check_at(samples, [TASK.items[0]] * 2, (2, 4, 8), model, SimpleNamespace(check=check))
    assert [text for _, text in asked] == ["a", "bb", "bbb"]
    assert [[answer.text for answer in answers] for answers in found.values()] == [
        ["a", "bb"], ["a", "bbb"], ["a", "bbb"],
    ]  # fmt: skip


def test_completions_that_do_not_parse_were_cut_off(result: StructuredResult) -> None:
    cut_off = [answer for cell in result.cells if cell.technique == "grammar" for answer in cell.answers]
    assert all(answer.cut_off for answer in cut_off if not answer.verdict.parses)


@pytest.mark.parametrize(
    ("finish", "n_tokens", "cut_off"),
    [(END, 3, False), (END, 4, True), (LENGTH, 3, True), (CONTEXT, 2, True), (DEAD_END, 2, False)],
)
def test_a_completion_is_cut_off_by_a_length_alone(finish: str, n_tokens: int, cut_off: bool) -> None:
    """One in which no token can follow is invalid."""
    with Model(data.model_path()) as model, Checker(TASK) as checker:
        sample = Sample(0, "x", 0, tokens=[40] * n_tokens, log_p=[0.0] * n_tokens, finish=finish)
        answer = answer_of(sample, TASK.items[0], 3, 0, model.vocabulary, checker.check)
    assert answer.cut_off == cut_off


def test_a_grammar_that_no_technique_keeps_to_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("pyquant.generation.structured.measure.make_engine", refuse)
    measure_structured([data.model_path()], TASK, techniques=["free"], lengths=[1], n=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"techniques": ["other"]}, "technique: expected one of free, "),
        ({"lengths": []}, "at least one length"),
        ({"n": 0}, "n: expected"),
        ({"engine": "other"}, "engine: expected one of"),
    ],
)
def test_wrong_settings_are_refused(change: dict, message: str) -> None:
    settings = {"techniques": TECHNIQUES, "lengths": [4], "n": 1, **change}
    with pytest.raises(ConfigError, match=message):
        measure_structured([data.model_path()], TASK, **settings)


def test_the_command_writes_a_table_and_all_completions(tmp_path: Path) -> None:
    texts = tmp_path / "texts.jsonl"
    arguments = ["structured", data.model_path(), "-n", 2, "--length", 4, "--technique", "grammar"]
    done = run(*arguments, "--texts", texts)
    assert done.returncode == 0, done.stderr
    assert "right %" in done.stdout
    assert "times as long with the grammar" not in done.stdout  # nothing was generated without it
    lines = [json.loads(line) for line in texts.read_text().splitlines()]
    assert [line["sample"] for line in lines] == [0, 1]
    assert set(lines[0]["verdict"]) == {"parses", "evaluates", "right"}
    again = run(*arguments, "--texts", texts)
    assert again.returncode == 1
    assert "exists; --force replaces it" in again.stderr


def test_the_command_says_what_a_grammar_costs() -> None:
    techniques = ["--technique", "free", "--technique", "grammar"]
    done = run("structured", data.model_path(), "-n", 2, "--length", 4, *techniques)
    assert done.returncode == 0, done.stderr
    name = data.model_path().name
    assert re.search(
        rf"^{name}: a token takes \d+\.\d\d times as long with the grammar as without$", done.stdout, re.M
    )
