"""`pyquant draft record`, `simulate`, `search`, `predict`: for people, for programs, and what they refuse."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pyquant import data
from tests.support.command import ENVIRONMENT, run
from tests.support.costs import write_costs

PROMPTS = ["def main(", "The module", "import os\n"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("draft")
    made = run("quantize", "--mode", "q4_0", data.model_path(), "q4_0.gguf", cwd=folder)
    assert made.returncode == 0, made.stderr
    lines = [json.dumps({"prompt": prompt, "name": prompt.split()[0]}) + "\n" for prompt in PROMPTS]
    (folder / "prompts.jsonl").write_text("".join(lines))
    write_costs(folder / "costs.json", (data.model_path(), folder / "q4_0.gguf"))
    made = run(*record(), "-o", "record", cwd=folder)
    assert made.returncode == 0, made.stderr
    assert re.search(r"^acceptance +[89]\d\.\d\d % of drafted tokens$", made.stdout, re.MULTILINE)
    assert re.search(r"^texts +3, \d+ tokens$", made.stdout, re.MULTILINE)
    return folder


def record() -> list[object]:
    pair = [data.model_path(), "q4_0.gguf", "--prompts", "prompts.jsonl"]
    return ["draft", "record", *pair, "--max-tokens", 40, "--threads", 1]


def test_all_policies_beside_none_and_the_best_possible(folder: Path) -> None:
    done = run("draft", "simulate", "record", "--costs", "costs.json", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["policies"]
    names = [row["policy"].partition(":")[0] for row in rows]
    assert names[0] == "none"
    assert names[-1] == "oracle"
    assert {"fixed", "plus_minus", "static", "cumulative", "adaedl", "expected_value"} < set(names)
    best = rows[-1]["ms_per_token"]
    assert all(best <= row["ms_per_token"] for row in rows)
    shown = run("draft", "simulate", "record", "--costs", "costs.json", "--policy", "static", cwd=folder)
    assert [line.split()[0] for line in shown.stdout.splitlines()[-4:-1]] == ["none", "static", "oracle"]


def test_figures(folder: Path, tmp_path: Path) -> None:
    arguments = [
        "draft",
        "simulate",
        "record",
        "--costs",
        "costs.json",
        "--figures",
        tmp_path / "f",
        "--json",
    ]
    done = run(*arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    drawn = [Path(path) for path in json.loads(done.stdout)["figures"]]
    assert [path.name for path in drawn] == [
        "entropies.png", "entropy-along.png", "lengths-along.png", "surfaces.png",
    ]  # fmt: skip
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    again = run(*arguments, cwd=folder)
    assert again.returncode == 1
    assert "exists; --force replaces it" in again.stderr
    assert run(*arguments, "--force", cwd=folder).returncode == 0


def test_a_search_and_its_file(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    words = ["draft", "search", "record", "--costs", "costs.json", "--policy", "static:keep=1"]
    done = run(*words, "--policy", "fixed", "-o", out, cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())["policies"]
    assert list(found) == ["static:keep=1", "fixed"]
    assert {row["parameters"]["keep"] for row in found["static:keep=1"]["surface"]} == {1}
    assert found["fixed"]["best"]["policy"] in done.stdout


def test_a_prediction(folder: Path) -> None:
    arguments = ["--acceptance", 0.8, "--costs", "costs.json", "--most", 3]
    done = run("draft", "predict", *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    # E = 1 + 0.8 + 0.64 + 0.512 = 2.952 tokens in 3 * 4 + 13 ms, where one alone takes 10.
    assert done.stdout.splitlines()[-2].split() == ["3", "2.95", "8.469", "1.181"]


def test_a_prediction_from_a_text(folder: Path) -> None:
    (folder / "text").write_text(data.evaluation_text()[:8000])
    words = ["draft", "predict", data.model_path(), "q4_0.gguf", "--text", "text", "--costs", "costs.json"]
    words += ["--ctx", 128, "--chunks", 4, "--threads", 1]
    done = run(*words, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["tokens"] == 4 * 64
    names = [row["policy"].partition(":")[0] for row in result["policies"]]
    assert (names[0], names[-1]) == ("none", "oracle")
    assert "expected_value" in names
    shown = run(*words, "--policy", "fixed:k=2", "--temperature", 1, cwd=folder)
    assert [line.split()[0] for line in shown.stdout.splitlines()[-4:-1]] == ["none", "fixed:k=2", "oracle"]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["simulate", "record", "--costs", "costs.json", "--policy", "x"], 2, "policy 'x': there is none"),
        (["simulate", "prompts.jsonl", "--costs", "costs.json"], 2, "no output of `pyquant draft record`"),
        (["simulate", "record", "--costs", "prompts.jsonl"], 2, "prompts.jsonl: "),
        (["simulate", "missing", "--costs", "costs.json"], 2, "missing: cannot be read as a record"),
        (["search", "record", "--costs", "costs.json", "--policy", "oracle"], 2, "there is none"),
        (["predict", "--acceptance", "1.5", "--costs", "costs.json"], 2, "1.5 is not a number from 0 to 1"),
        (["predict", "--costs", "costs.json"], 2, "give TARGET.gguf, DRAFT.gguf and --text FILE, or"),
        (["predict", "q4_0.gguf", "--costs", "costs.json"], 2, "give TARGET.gguf, DRAFT.gguf and --text"),
        (
            ["predict", "--acceptance", "0.5", "--policy", "fixed", "--costs", "costs.json"],
            2,
            "--acceptance goes without models",
        ),
    ],
)
def test_what_is_refused(arguments: list[str], status: int, message: str, folder: Path) -> None:
    done = run("draft", *arguments, cwd=folder)
    assert done.returncode == status
    assert message in done.stderr
    assert done.stdout == ""


def test_costs_of_other_models(folder: Path) -> None:
    """Costs of the target as its own draft: refused for the record, and taken for a prediction."""
    write_costs(folder / "other.json", (data.model_path(), data.model_path()))
    for command in ("simulate", "search"):
        words = ["draft", command, "record", "--costs", "other.json", "--policy", "fixed:k=2"]
        refused = run(*words, cwd=folder)
        assert refused.returncode == 2
        assert "other.json: costs of another draft (SHA-256 " in refused.stderr
        assert refused.stdout == ""
        taken = run(*words, "--other-models", cwd=folder)
        assert taken.returncode == 0
        assert "a prediction: costs are of other models" in " ".join(taken.stdout.split())


def test_a_run_beside_what_is_foretold(folder: Path) -> None:
    words = ["draft", "run", data.model_path(), "q4_0.gguf", "--prompts", "prompts.jsonl"]
    words += ["--turns", 1, "--threads", 1, "--policy", "fixed:k=2", "--policy", "static", "--json"]
    words += ["--costs", "costs.json"]
    done = run(*words, "--max-tokens", 40, "--record", "record", cwd=folder)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    alone, fixed, static = result["foretold"]
    assert (alone["policy"], fixed["policy"], static["policy"]) == (None, "fixed:k=2", "static")
    # Measured in turns with the texts: not the 10 ms of costs.json.
    assert alone["by_costs"] == pytest.approx(alone["replayed"]) == pytest.approx(alone["predicted"])
    assert result["timed"]["verify"][0]["seconds"] < 0.01
    assert fixed["by_costs"] == pytest.approx(fixed["replayed"], rel=0.1)
    assert static["predicted"] is None
    assert all(row["measured"] > 0 for row in (alone, fixed, static))
    shorter = run(*words, "--max-tokens", 20, "--record", "record", cwd=folder)
    assert shorter.returncode == 2
    assert "is of other texts: max_tokens differ" in shorter.stderr
    assert "--record needs --costs" in run(*words[:-2], "--record", "record", cwd=folder).stderr


def test_another_vocabulary_is_refused(
    folder: Path, generated: Callable[[str], Path], tmp_path: Path
) -> None:
    pair = [data.model_path(), generated("f32, rows of 64 and 96")]
    words = ["draft", "record", *pair, "--prompts", "prompts.jsonl", "-o", tmp_path / "r"]
    done = run(*words, cwd=folder)
    assert done.returncode == 2
    assert "cannot draft for" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_leaves_what_the_same_command_goes_on_with(folder: Path, tmp_path: Path) -> None:
    words = [*record(), "-n", 200, "-o", tmp_path / "r"]
    partial = tmp_path / ".r.partial"
    command = [sys.executable, "-m", "pyquant", *map(str, words)]
    with subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not (partial.exists() and partial.read_bytes().count(b"\n") > 2):
            pass
        process.send_signal(signal.SIGINT)
        _, error = process.communicate()
    assert process.returncode == 130
    assert ".r.partial" in error
    assert not (tmp_path / "r").exists()
    assert partial.read_bytes().count(b"\n") > 2
