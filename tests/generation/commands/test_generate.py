"""`pyquant generate`: text for people, lines of JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pyquant import data
from pyquant.cli import app
from pyquant.errors import ModelFileError
from pyquant.generation.sampling.penalties import Penalties
from pyquant.generation.sampling.result import Sample
from pyquant.generation.sampling.sampling import Sampling
from pyquant.llama.model import Model
from tests.support.command import run


def test_a_completion_is_printed_alone() -> None:
    done = run("generate", data.model_path(), "-p", "def main(", "--max-tokens", 8, "--temperature", 0)
    assert done.returncode == 0
    assert done.stdout.endswith("\n")
    assert len(done.stdout) > 8
    assert "8 tokens in" in done.stderr
    assert "1 sequence of" in done.stderr


def test_json_has_a_line_for_each_completion_in_order(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "import", "name": "a"}\n{"prompt": "The", "name": "b"}\n')
    arguments = ["generate", data.model_path(), "--prompts", prompts, "-n", 3, "--max-tokens", 5, "--json"]
    done = run(*arguments)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["prompt"], line["sample"]) for line in lines] == [(p, i) for p in "ab" for i in range(3)]
    assert all(line["finish"] in ("end", "length") for line in lines)
    assert run(*arguments, "--parallel", 4).stdout == done.stdout


def test_completions_of_a_prompt_that_ends_last_come_first(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "def f(x):", "name": "a"}\n{"prompt": "import os", "name": "b"}\n')
    ends = ["--max-tokens", 12, "--seed", 1, "--stop", "\nimport", "--stop", "os"]
    done = run("generate", data.model_path(), "--prompts", prompts, *ends, "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["prompt"] for line in lines] == ["a", "b"]
    assert len(lines[1]["tokens"]) < len(lines[0]["tokens"])


def test_what_waits_for_an_earlier_one_is_not_lost_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_in_the_end(*arguments: object, **named: object) -> Iterator[Sample]:
        for number in (0, 3, 1, 4):
            yield Sample(0, "p", number, tokens=[5], log_p=[-1.0], finish="length")
        raise ModelFileError("its logits are not numbers")

    monkeypatch.setattr("pyquant.generation.sampling.generate.generate", fail_in_the_end)
    runner = CliRunner()
    asked = ["generate", str(data.model_path()), "-p", "p", "-n", "5"]
    shown = runner.invoke(app, [*asked, "--json"])
    assert isinstance(shown.exception, ModelFileError)
    assert [json.loads(line)["sample"] for line in shown.stdout.splitlines()] == [0, 1, 3, 4]


@pytest.mark.parametrize(
    ("option", "value", "attribute"),
    [
        ("--temperature", 0.625, "temperature"),
        ("--top-k", 7, "top_k"),
        ("--top-p", 0.5, "top_p"),
        ("--min-p", 0.25, "min_p"),
        ("--seed", 3, "seed"),
        ("--repeat-penalty", 1.5, "repeat"),
        ("--presence-penalty", 0.75, "presence"),
        ("--frequency-penalty", 0.125, "frequency"),
        ("--repeat-last-n", 9, "last"),
    ],
)
def test_each_option_sets_what_it_names_and_nothing_else(
    option: str, value: float, attribute: str, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[Sampling, Penalties | None]] = []

    def take(model: object, plan: object, sampling: Sampling, **named: Any) -> Iterator[Sample]:
        given.append((sampling, named["penalties"]))
        return iter(())

    monkeypatch.setattr("pyquant.generation.sampling.generate.generate", take)
    words = ["generate", small_model, "-p", "p", option, value]
    # A range of tokens alone penalizes nothing, and is refused.
    words += ["--presence-penalty", 0.5] if attribute == "last" else []
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    ((sampling, penalties),) = given
    of_penalties = {"presence": 0.5, attribute: value} if attribute == "last" else {attribute: value}
    if hasattr(Sampling, attribute):
        assert (sampling, penalties) == (Sampling(**{attribute: value}), None)
    else:
        assert (sampling, penalties) == (Sampling(), Penalties(**of_penalties))


def test_wrong_calls_say_what_to_do(tmp_path: Path) -> None:
    model = data.model_path()
    neither = run("generate", model)
    assert neither.returncode == 2
    assert "give either --prompt TEXT or --prompts FILE.jsonl" in neither.stderr
    no_chat = run("generate", model, "-p", "x", "--chat")
    assert no_chat.returncode == 1
    assert "has no chat template; give --chat-template FILE, or a prompt without --chat" in no_chat.stderr
    out_of_range = run("generate", model, "-p", "x", "--top-p", "1.5")
    assert out_of_range.returncode == 2
    assert "from" in out_of_range.stderr or "above" in out_of_range.stderr


@pytest.mark.ci
def test_exact_completions_have_their_attempts(tmp_path: Path) -> None:
    arguments = [
        "generate",
        data.model_path(),
        "-p",
        "x = ",
        "--regex",
        "[127]",
        "--exact",
        "-n",
        3,
        "--json",
    ]
    lines = [json.loads(line) for line in run(*arguments).stdout.splitlines()]
    assert [line["finish"] for line in lines] == ["end"] * 3
    assert all(line["text"] in ("1", "2", "7") and line["attempts"] >= 1 for line in lines)
    done = run(*arguments, "--attempts", 1)
    assert done.returncode == 0
    assert "none of 1 attempts at completion 0 kept to the grammar; --attempts allows more" in done.stderr
    without = run("generate", data.model_path(), "-p", "x", "--exact")
    assert without.returncode == 2
    assert "--exact needs --grammar, --json-schema or --regex" in without.stderr
    truncated = run(*arguments, "--top-p", "0.9")
    assert truncated.returncode == 2
    assert "top-p 1" in truncated.stderr


WITHOUT_PACKAGES = """
import sys
sys.modules.update(lark=None, llguidance=None)
from pyquant.__main__ import main
sys.argv = ["pyquant", *{arguments}]
main()
"""


@pytest.mark.parametrize(
    ("package", "form"),
    [
        ("llguidance", ["--grammar", "json", "--engine", "llguidance"]),
        ("llguidance", ["--regex", "a+"]),
        ("llguidance", ["--json-schema", "s.json"]),
        ("lark", ["--grammar", "json"]),
    ],
)
def test_a_missing_package_is_named_with_the_way_to_it(package: str, form: list[str], tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("{}")
    plain = ["generate", str(data.model_path()), "-p", "x", "--max-tokens", "4"]
    done = run(script=WITHOUT_PACKAGES.format(arguments=[*plain, *form]), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"pyquant: grammars need the package {package}: pip install 'pyquant[generation]'\n"


def test_a_completion_without_a_grammar_needs_no_package() -> None:
    plain = ["generate", str(data.model_path()), "-p", "x", "--max-tokens", "4"]
    done = run(script=WITHOUT_PACKAGES.format(arguments=plain))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("task", ["arithmetic", "sql", "c_function", "function_call"])
def test_structured_names_a_missing_package(task: str) -> None:
    arguments = ["structured", str(data.model_path()), "--task", task, "-n", "1", "--technique", "grammar"]
    done = run(script=WITHOUT_PACKAGES.format(arguments=arguments))
    assert done.returncode == 1
    assert "pip install 'pyquant[generation]'" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["--regex", "[a-z]{60}", "--max-tokens", 2],
            "as many tokens as --max-tokens allows, and may be cut off",
        ),
        (["--regex", "[0-9]7", "--logit-bias", "7"], "none of the tokens that may be drawn can follow"),
        (["--regex", "[a-z]{60}", "--max-tokens", 2, "--draft", "ngram"], "and may be cut off"),
    ],
)
def test_a_text_that_ends_before_its_grammar_is_remarked_on(words: list[Any], says: str) -> None:
    if "--logit-bias" in words:  # no token with a 7
        with Model(data.model_path()) as model:
            sevens = [token for token, piece in enumerate(model.vocabulary.pieces()) if b"7" in piece]
        words = words[:2] + [word for token in sevens for word in ("--logit-bias", f"{token}-inf")]
    done = run("generate", data.model_path(), "-p", "x = ", *words)
    assert done.returncode == 0, done.stderr
    assert says in done.stderr
