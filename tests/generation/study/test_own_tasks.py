"""Tasks of one's own in studies: a file that the study names is run; results that hold its name are not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pyquant import data
from pyquant.errors import ConfigError
from pyquant.study.config import read_study
from pyquant.study.report.html import report
from pyquant.study.results.read import read_results
from pyquant.study.run import run_study
from pyquant.study.store import Store
from tests.support.outside_task import TASK

STUDY = """
measure = ["structured"]
[structured]
tasks = ["arithmetic", "own/mine.py"]
techniques = ["grammar"]
lengths = [8]
samples = 2
[[quantizer]]
mode = "ggml:Q8_0"
"""


def write(folder: Path, task: str = TASK, study: str = STUDY) -> Path:
    (folder / "own").mkdir(exist_ok=True, parents=True)
    (folder / "own" / "mine.py").write_text(task)
    (folder / "study.toml").write_text(study)
    return folder / "study.toml"


def run(study: Path, results: Path) -> Store:
    run_study(read_study(study, models=[data.model_path()]), results, workers=1)
    return Store(results)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    run(write(folder), folder / "results")
    return folder


def keys_of(store: Store) -> list[str]:
    return [row.keys["structured"][0] for row in read_results(store).models[0].rows]


def test_answers_are_checked_by_the_file(finished: Path) -> None:
    store = Store(finished / "results")
    for key in keys_of(store):
        record = store.read(key)
        cells = {cell["task"]: cell for cell in record["result"]["cells"]}
        assert list(cells) == ["arithmetic", "mine.py"]
        assert cells["mine.py"]["errors"] == 0
        lines = (store.runs / record["result"]["texts"]["file"]).read_text().splitlines()
        texts = [line for line in map(json.loads, lines) if line["task"].startswith("mine.py ")]
        right = [text["text"] == ("no" if int(text["name"]) % 2 else "yes") for text in texts]
        assert cells["mine.py"]["scores"]["right"]["n"] == sum(right)
        assert cells["mine.py"]["scores"]["parses"]["n"] == len(right) == 2
    assert "Task mine.py, at most 8 tokens (%)" in report(store)


@pytest.mark.ci
def test_a_changed_file_is_another_task(finished: Path, tmp_path: Path) -> None:
    """Its completions are generated again; those of the task beside it are not."""
    results = shutil.copytree(finished / "results", tmp_path / "results")
    before = keys_of(Store(results))
    moved = write(tmp_path / "elsewhere")
    assert keys_of(run(moved, results)) == before  # the same file in another folder
    write(tmp_path / "elsewhere", TASK + "\n# changed\n")
    store = run(moved, results)
    after = keys_of(store)
    assert not set(after) & set(before)
    for key in after:
        writing = store.read(key)["provenance"]["writing"]
        assert [(part["task"], part["n"]) for part in writing] == [("mine.py", 2)]


def test_results_run_nothing(finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(finished, tmp_path / "copy")
    marker = tmp_path / "was-run"
    (folder / "own" / "mine.py").write_text(f"open({str(marker)!r}, 'w').close()")
    store = Store(folder / "results")
    report(store)
    assert not any(store.problem(key) for key in store.finished())
    assert not marker.exists()
    with pytest.raises(ConfigError, match=r"mine\.py: defines no TASK"):
        read_study(folder / "study.toml", models=[data.model_path()])
    assert marker.exists()  # naming it in a study runs it


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ('"own/odd.py"', r"odd\.py: no such file; a task of one's own"),
        ('"own/mine.py", "mine.py"', r"tasks: two are called 'mine\.py'"),
        ('"sql", "sql"', r"tasks: two are called 'sql'"),
        ('"own/mine"', r"'sql', or a file 'FILE\.py'"),
        ("3", "tasks"),
    ],
)
def test_wrong_tasks_are_refused(tasks: str, message: str, tmp_path: Path) -> None:
    study = write(tmp_path, study=STUDY.replace('"arithmetic", "own/mine.py"', tasks))
    shutil.copy(tmp_path / "own" / "mine.py", tmp_path)
    with pytest.raises(ConfigError, match=message):
        read_study(study, models=[data.model_path()])


def test_the_files_line_is_named(tmp_path: Path) -> None:
    study = write(tmp_path, TASK.replace("TASK = Yes", "TASK = No"))
    line = 1 + TASK.splitlines().index("TASK = YesOrNo()")
    with pytest.raises(ConfigError, match=rf"study\.toml: .*mine\.py, line {line}: NameError"):
        read_study(study, models=[data.model_path()])
