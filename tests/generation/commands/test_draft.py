"""Drafting on the command line: `pyquant generate --draft`, and `pyquant draft`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyquant import data
from pyquant.cli import app
from pyquant.errors import PyquantError
from pyquant.files.sha256 import files_sha256
from pyquant.generation.speculative.policies.costs import read_costs
from tests.support.command import run
from tests.support.costs import write_costs
from tests.support.models import Model as Generated

MODEL = data.model_path()
GREEDY = ["-p", "def main(", "--temperature", 0, "--max-tokens", 24]


@pytest.fixture(scope="module")
def q4_0(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("draft") / "q4_0.gguf"
    assert run("quantize", MODEL, path, "--mode", "q4_0").returncode == 0
    return path


@pytest.mark.ci
def test_the_completion_is_the_same_and_what_drafting_brings_is_said(q4_0: Path) -> None:
    alone = run("generate", MODEL, *GREEDY)
    for draft in (q4_0, "ngram"):
        done = run("generate", MODEL, *GREEDY, "--draft", draft, "--policy", "fixed:k=3")
        assert done.returncode == 0, done.stderr
        assert done.stdout == alone.stdout
        assert "24 tokens in" in done.stderr
        assert "tokens a round" in done.stderr
    sizes = run("generate", MODEL, *GREEDY, "--draft", q4_0).stderr
    assert f"{MODEL.name}: 10.6 MB of weights" in sizes
    assert f"{q4_0.name}: " in sizes


@pytest.mark.slow
def test_json_has_what_drafting_brought(q4_0: Path) -> None:
    done = run("generate", MODEL, *GREEDY, "--draft", q4_0, "--policy", "fixed:k=3", "--json", "-n", 2)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["sample"] for line in lines] == [0, 1]
    for line in lines:
        assert (line["schema"], line["draft"], line["policy"]) == (
            "pyquant.generate/1", str(q4_0), "fixed:k=3",
        )  # fmt: skip
        assert len(line["tokens"]) == 24 == 1 + line["rounds"] + line["accepted"]
        assert line["acceptance"] == line["accepted"] / line["drafted"] > 0
        assert line["tokens_per_second"] > 0


@pytest.mark.ci
def test_wrong_calls_say_what_to_do(q4_0: Path, tmp_path: Path) -> None:
    other = Generated(n_embd=32, n_ff=32, n_layer=1, n_head=2, n_head_kv=2).write(tmp_path / "other.gguf")
    for words, says in [
        (["--draft", other], "cannot draft for"),
        (["--draft", q4_0, "--policy", "fixed:k=-1"], "k"),
        (["--draft", q4_0, "--policy", "fixd"], "there are auto, fixed"),
        (["--draft", q4_0, "--policy", "expected_value"], "needs measured costs"),
        (["--draft", q4_0, "--parallel", 2], "generates one completion at a time"),
        (["--policy", "fixed"], "--policy and --costs need --draft"),
        (["--draft", q4_0, "--costs", other], "are of --policy expected_value"),
        (
            ["--draft", q4_0, "--policy", "expected_value", "--costs", other],
            "cannot be read as an output of `pyquant draft costs`",
        ),
    ]:
        refused = run("generate", MODEL, *GREEDY, *words)
        assert refused.returncode == 2, words
        assert says in refused.stderr
    assert run("generate", MODEL, *GREEDY, "--draft", tmp_path / "nowhere.gguf").returncode == 1


@pytest.mark.ci
def test_a_larger_draft_is_remarked_on(q4_0: Path) -> None:
    done = run("generate", q4_0, *GREEDY, "--draft", MODEL)
    assert done.returncode == 0
    assert "is larger than its target" in done.stderr
    assert done.stdout == run("generate", q4_0, *GREEDY).stdout


@pytest.mark.ci
def test_costs_are_measured_and_used(q4_0: Path, tmp_path: Path) -> None:
    costs = tmp_path / "costs.json"
    done = run("draft", "costs", MODEL, q4_0, "--rounds", 1, "-o", costs)
    assert done.returncode == 0, done.stderr
    assert "a pass over 32" in done.stdout
    assert len(read_costs(costs).verify) == 32
    assert json.loads(costs.read_text())["target"]["sha256"]
    assert run("draft", "costs", MODEL, q4_0, "-o", costs).returncode == 1  # it is there
    text = run("generate", MODEL, *GREEDY, "--draft", q4_0, "--policy", "expected_value", "--costs", costs)
    assert text.stdout == run("generate", MODEL, *GREEDY).stdout
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "def main("}\n')
    for words in (
        ["generate", MODEL, *GREEDY, "--draft", "ngram", "--policy", "expected_value"],
        ["draft", "run", MODEL, "ngram", "--prompts", prompts, "--policy", "fixed"],
    ):
        refused = run(*words, "--costs", costs)
        assert refused.returncode == 2
        assert f"another draft (SHA-256 {files_sha256([q4_0])[:12]}...) than" in refused.stderr
        assert "`pyquant draft costs` measures them" in refused.stderr


@pytest.mark.ci
def test_policies_run_beside_no_draft(q4_0: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "def main("}\n{"prompt": "The module"}\n')
    words = ["draft", "run", MODEL, q4_0, "--prompts", prompts, "--max-tokens", 16, "--turns", 2]
    done = run(*words, "--policy", "fixed:k=2", "--policy", "static", "--check", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [row["policy"] for row in result["policies"]] == ["no draft", "fixed:k=2", "static"]
    alone, fixed, _ = result["policies"]
    assert (alone["ratio"], alone["drafted"], alone["acceptance"]) == (1, 0, None)
    assert fixed["tokens"] == alone["tokens"] == 2 * 2 * 16
    assert fixed["flips"] == [[], []]
    assert fixed["ratio"] > 0
    assert (fixed["ratio_low"], fixed["ratio_high"], result["apart"]) == (None, None, False)
    assert 0 < fixed["accepted"] <= fixed["drafted"]
    table = run(*words, "--policy", "fixed:k=2", "--check")
    assert "2 prompts say nothing of chance; give 4 or more" in table.stdout
    assert "fixed:k=2: all 2 completions are the target's own, token for token" in table.stdout
    drawn = run(*words, "--check", "--temperature", 1)
    assert drawn.returncode == 2
    assert "needs temperature 0" in drawn.stderr


@pytest.mark.ci
def test_a_search_and_a_run_of_what_it_found(q4_0: Path, tmp_path: Path) -> None:
    prompts, costs, out = (tmp_path / name for name in ("prompts.jsonl", "costs.json", "found.json"))
    prompts.write_text('{"prompt": "def main("}\n{"prompt": "The module"}\n')
    write_costs(costs, (MODEL, q4_0))
    pair = [MODEL, q4_0, "--prompts", prompts, "--max-tokens", 24, "--costs", costs]
    chosen = ["--policy", "static:keep=1", "--policy", "fixed", "--policy", "expected_value"]
    done = run("draft", "search", *pair, *chosen, "-o", out)
    assert done.returncode == 0, done.stderr
    names = [line.split()[0].partition(":")[0] for line in done.stdout.splitlines() if line.strip()]
    assert names[-6:-1] == ["none", "static", "fixed", "expected_value", "oracle"]
    result = json.loads(out.read_text())
    assert list(result["policies"]) == ["static:keep=1", "fixed", "expected_value"]
    every = list(result["policies"].values())
    assert all(result["oracle"]["ms_per_token"] <= its["ms_per_token"] for its in every)
    assert "keep" not in every[0]["policy"]
    assert result["none"]["gain"] == pytest.approx(1)
    ran = run("draft", "run", *pair, "--found", out, "--turns", 1, "--json")
    assert ran.returncode == 0, ran.stderr
    rows = json.loads(ran.stdout)["policies"]
    assert [row["policy"] for row in rows] == ["no draft", *(its["policy"] for its in every)]
    assert [row["replayed"] for row in rows] == [None, *(its["gain"] for its in every)]
    assert run("draft", "search", *pair, "-o", out).returncode == 1  # it is there
    write_costs(costs, (MODEL, MODEL))
    refused = run("draft", "search", *pair)
    assert refused.returncode == 2
    assert "costs of another draft (SHA-256 " in refused.stderr
    assert "there are auto, fixed" in run("draft", "search", *pair, "--policy", "oracle").stderr
    out.write_text(json.dumps(result | {"policies": {"fixed": {}}}))
    assert "best setting is missing" in run("draft", "run", *pair, "--found", out).stderr
    out.write_text(json.dumps(result | {"models": ["0" * 64, result["models"][1]]}))
    assert "is of another target or draft" in run("draft", "run", *pair, "--found", out).stderr
    out.write_text('{"schema": "pyquant.draft.costs/2"}')
    assert "is no output of `pyquant draft search`" in run("draft", "run", *pair, "--found", out).stderr


def test_ctrl_c_ends_it_as_without_a_draft(q4_0: Path) -> None:
    command = [sys.executable, "-m", "pyquant", "generate", str(MODEL), "-p", "def", "--draft", str(q4_0)]
    words = [*command, "-n", "100000", "--max-tokens", "20"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    assert process.returncode == 130


def test_calls_are_checked_before_a_draft_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a draft is made")

    monkeypatch.setattr("pyquant.generation.commands.draft.named_draft", refuse)
    prompts, costs, there, found = (tmp_path / name for name in ("prompts.jsonl", "costs", "there", "found"))
    prompts.write_text('{"prompt": "The"}\n')
    write_costs(costs, (MODEL, MODEL))
    there.write_text("{}")
    found.write_text("{}")
    for words, says in (
        (["run", "--policy", "nonsense"], "there is none"),
        (["run", "--check", "--temperature", 1], "needs temperature 0"),
        (["run", "--costs", there], "is no output of `pyquant draft costs`"),
        (["search", "--costs", costs, "-o", found], "exists; --force replaces it"),
        (["search", "--costs", costs, "--policy", "nonsense"], "there is none"),
        (["search", "--costs", costs, "-o", costs, "--force"], "is the input, which is never overwritten"),
    ):
        command, *options = map(str, words)
        done = CliRunner().invoke(
            app, ["draft", command, str(MODEL), "auto", "--prompts", str(prompts), *options]
        )
        assert isinstance(done.exception, PyquantError), done.output
        assert says in str(done.exception)
