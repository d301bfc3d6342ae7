"""A task of one's own is one file: it is asked and checked as bundled ones are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyquant import data
from pyquant.errors import ConfigError
from pyquant.generation.structured.checker import Checker
from pyquant.generation.structured.tasks import load_task
from tests.support.command import run
from tests.support.outside_task import TASK


def written(folder: Path, text: str = TASK) -> Path:
    path = folder / "yes_or_no.py"
    path.write_text(text)
    return path


def test_another_process_checks_its_answers(tmp_path: Path) -> None:
    task = load_task(str(written(tmp_path)))
    with Checker(task) as checker:
        verdicts = [checker.check(item, "no") for item in task.items]
    assert [(verdict.parses, verdict.right, error) for verdict, error in verdicts] == [
        (True, True, ""),
        (True, False, ""),
    ]


def test_a_model_is_asked(tmp_path: Path) -> None:
    path = written(tmp_path)
    asked = ["structured", data.model_path(), "--task", path, "-n", 4, "--length", 4]
    done = run(*asked, "--technique", "grammar", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    (cell,) = result["cells"]
    assert (result["task"], cell["n"], cell["errors"]) == ("yes or no", 4, 0)
    # Under the grammar a completion is one of two words, if it is not cut off.
    assert cell["scores"]["parses"]["share"] * 4 + cell["cut_off"] == 4


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1", r"defines no TASK: an object of a class of its own"),
        ("class TASK: pass", r"defines no TASK"),
        ("\nx = 1 / 0", r"yes_or_no\.py, line 2: ZeroDivisionError"),
        ("def f(:", r"yes_or_no\.py, line 1: SyntaxError"),
        (TASK.replace("form =", "shape ="), "its TASK has no form$"),
        (TASK.replace("items =", "items = (1,) #"), "its TASK has no questions"),
        (TASK.replace("items =", "items = () #"), "its TASK has no questions"),
        (TASK.replace('("Is 2 even?", "yes"), ', ""), "its TASK has 2 examples; 3 are shown"),
        (TASK.replace("needs = ()", 'needs = ("no-such-program",)'), "its check runs no-such-program"),
    ],
)
def test_what_is_no_task_is_named(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        load_task(str(written(tmp_path, text)))


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.py: no such file; a task of one's own is a Python file"):
        load_task(str(tmp_path / "none.py"))


def test_the_file_is_not_replaced_by_completions(tmp_path: Path) -> None:
    path = written(tmp_path)
    done = run("structured", data.model_path(), "--task", path, "--texts", path, "--force")
    assert done.returncode != 0
    assert path.read_text() == TASK
