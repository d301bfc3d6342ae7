"""Metric drafting: what a study keeps of drafts, and its report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyquant import data
from pyquant.errors import ConfigError
from pyquant.generation.study.report import drafting as report
from pyquant.study.config import read_study
from pyquant.study.store import Store, digest_of
from tests.support.studies import model_of, run_on_the_box

STUDY = """
measure = ["size", "drafting"]
[drafting]
sorts = ["code"]
prompt = 8
new = 24
texts = 2
rounds = 1
confirm = 1
turns = 1
[[quantizer]]
mode = "ggml:Q4_0"
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_on_the_box(tmp_path_factory.mktemp("drafting"), STUDY)


def test_acceptance_is_the_result(results: Path) -> None:
    ngram, row = model_of(results).rows
    (cell,), (of_ngrams,) = (its.result("drafting")["cells"] for its in (row, ngram))
    assert (cell["target"], cell["sort"], cell["texts"]) == ("unquantized", "code", 2)
    assert cell["drafted"] == cell["tokens"] == of_ngrams["tokens"]
    assert 0 < of_ngrams["drafted"] < of_ngrams["tokens"]
    assert 0.5 < cell["acceptance"] <= 1


def test_times_and_what_follows_from_them_is_provenance(results: Path) -> None:
    for row in model_of(results).rows:
        (key,) = row.keys["drafting"]
        written = Store(results).read(key)
        assert "seconds" not in json.dumps(written["result"])
        (part,) = written["provenance"]["drafting"]
        assert len(part["costs"]["verify"]) == 32
        runs, replays = part["sorts"]["code"]["runs"], part["sorts"]["code"]["replays"]
        assert [its["ratio"] > 0 for its in runs] == [True] * 4
        assert (replays[0]["policy"], replays[-1]["policy"]) == ("none", "oracle")
        assert max(its["gain"] for its in replays) == replays[-1]["gain"]
        digest = written["digest"]
        part["costs"]["draft"]["seconds"] *= 2
        assert digest_of(written) == digest
    assert not list((results / "runs").glob("*.gguf"))


def test_the_report_has_a_table_and_a_figure(results: Path) -> None:
    model = model_of(results)
    (grid,) = report.grids(model)
    assert all(len(cells) == len(grid.groups) * len(grid.heads) for _, cells in grid.rows)
    assert len(grid.rows) == 2
    assert len(report.drawings(model)) == 1
    assert (
        "Speculative decoding: a quantized model as the draft model" in (results / "report.html").read_text()
    )


@pytest.mark.slow
def test_a_second_target(tmp_path: Path) -> None:
    study = STUDY.replace("[drafting]\n", '[drafting]\ntargets = ["unquantized", "ggml:Q8_0"]\n')
    results = run_on_the_box(tmp_path, study)
    model = model_of(results)
    for row in model.rows:
        assert list(report.parts_of(row)) == ["unquantized", "ggml:Q8_0"]
    assert len(report.grids(model)[0].rows) == 4
    assert not list((results / "runs").glob("*.gguf"))


def test_settings_are_checked(tmp_path: Path) -> None:
    for was, becomes, message in [
        ('"code"', '"verse"', "'code', 'prose' or 'chat'"),
        ("new = 24", "new = 0", "new"),
        ("texts = 2", "text = 2", "text"),
    ]:
        config = tmp_path / "study.toml"
        config.write_text(STUDY.replace(was, becomes))
        with pytest.raises(ConfigError, match=message):
            read_study(config, models=[data.model_path()])
