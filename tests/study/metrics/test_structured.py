"""Metric structured: what a model writes in a study is what the library says, and goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyquant import data
from pyquant.errors import ConfigError
from pyquant.structured.measure import measure_structured
from pyquant.structured.tasks import load_task
from pyquant.study.config import read_study
from pyquant.study.report.results import ModelResults, read_results
from pyquant.study.run import run_study
from pyquant.study.store import Store

STUDY = """
measure = ["size", "structured"]
[structured]
tasks = ["arithmetic"]
techniques = ["free", "grammar"]
lengths = [4, 10]
samples = 5
seed = 3
[[quantizer]]
mode = "ggml:Q2_K"
"""


def run(folder: Path, study: str = STUDY) -> Path:
    config = folder / "study.toml"
    config.write_text(study)
    run_study(read_study(config, models=[data.model_path()]), folder / "results", workers=1)
    return folder / "results"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("structured"))


def model_of(results: Path) -> ModelResults:
    return read_results(Store(results)).models[0]


def test_counts_are_the_librarys(results: Path) -> None:
    base = model_of(results).rows[0]
    written = base.result("structured")
    assert written is not None
    library = measure_structured(
        [data.model_path()],
        load_task("arithmetic"),
        techniques=["free", "grammar"],
        lengths=[4, 10],
        n=5,
        seed=3,
    ).to_json()["cells"]
    for cell, expected in zip(written["cells"], library):
        assert {key: expected[key] for key in cell if key != "task"} == {
            key: value for key, value in cell.items() if key != "task"
        }
    assert len(written["cells"]) == len(library) == 4


def test_all_texts_are_kept(results: Path) -> None:
    for row in model_of(results).rows:
        (key,) = row.keys["structured"]
        lines = [json.loads(line) for line in Store(results).samples_path(key).read_text().splitlines()]
        assert [(line["technique"], line["sample"]) for line in lines] == [
            (technique, sample) for technique in ("free", "grammar") for sample in range(5)
        ]
        measured = row.measurement("structured")
        assert measured is not None
        items = measured.items()
        assert items is not None
        assert len(items["right"]) == 2 * 2 * 5


def test_a_study_goes_on_at_the_next_text(results: Path) -> None:
    """Three of ten texts are written where seven are there and the eighth is cut off; the result is equal."""
    (key,) = model_of(results).rows[0].keys["structured"]
    store = Store(results)
    lines = store.samples_path(key).read_bytes().splitlines(keepends=True)
    cells = json.loads(store.path(key).read_text())["result"]["cells"]
    store.path(key).unlink()
    marked = json.loads(lines[0])
    marked["log_p"][0] = -0.125  # would not be there if the text were written again
    lines[0] = json.dumps(marked).encode() + b"\n"
    store.samples_path(key).write_bytes(b"".join(lines[:7]) + lines[7][:40])
    config = read_study(results.parent / "study.toml", models=[data.model_path()])
    run_study(config, results, workers=1)
    assert store.samples_path(key).read_bytes() == b"".join(lines)
    assert json.loads(store.path(key).read_text())["result"]["cells"] == cells


def test_the_report_shows_it(results: Path) -> None:
    page = (results / "report.html").read_text()
    assert "Structured output: form and sense" in page
    assert "Task arithmetic, at most 10 tokens (%)" in page
    assert "Technique grammar: the unquantized model is right in" in page
    assert "García Casasola" in page


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ('tasks = ["arithmetic"]|tasks = ["cooking"]', "'arithmetic', 'function_call'"),
        ('"free", "grammar"|"free", "hope"', "'free', 'grammar'"),
        ("samples = 5|samples = 0", "samples"),
        ("seed = 3|seeds = 3", "seeds"),
    ],
)
def test_wrong_settings_are_refused(change: str, message: str, tmp_path: Path) -> None:
    config = tmp_path / "study.toml"
    config.write_text(STUDY.replace(*change.split("|")))
    with pytest.raises(ConfigError, match=message):
        read_study(config, models=[data.model_path()])
