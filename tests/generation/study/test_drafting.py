"""Metric drafting: records and counts of a study, what is replayed on them, its report, and going on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pyquant import data
from pyquant.errors import ConfigError
from pyquant.generation.speculative.measure.measure_pair import pooled
from pyquant.generation.speculative.policies.costs import Costs
from pyquant.generation.speculative.record.record import read_record
from pyquant.generation.speculative.replay.simulate import Simulation
from pyquant.generation.study.report import drafting as report
from pyquant.generation.study.report.drafting_figures import drawings
from pyquant.generation.study.report.drafting_tables import tables
from pyquant.study.config import read_study
from pyquant.study.store import Store, digest_of
from tests.support.studies import model_of, run_on_the_box

STUDY = """
measure = ["size", "drafting"]
[drafting]
sorts = ["code"]
rounds = 1
confirm = 1
turns = 1
[[drafting.lengths]]
prompt = 8
new = 24
texts = 2
[[quantizer]]
mode = "ggml:Q4_0"
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_on_the_box(tmp_path_factory.mktemp("drafting"), STUDY)


def test_cells_are_those_of_the_records(results: Path) -> None:
    ngram, row = model_of(results).rows
    (cell,) = row.result("drafting")["cells"]
    records = {
        record.source.draft: record for record in map(read_record, (results / "runs").glob("*.record"))
    }
    of_ngrams = records.pop("ngram")
    (record,) = records.values()
    fresh = record.before_repetitions()
    assert (cell["target"], cell["sort"], cell["prompt"], cell["new"]) == ("unquantized", "code", 8, 24)
    assert cell["all_tokens"] == record.n_tokens >= fresh.n_tokens == cell["fresh_tokens"] > 0
    assert cell["fresh_acceptance"] == fresh.joined("accepted").mean()
    items = row.measurement("drafting").items()
    assert items["entropy"] == pytest.approx(record.joined("entropy"), rel=1e-6)
    assert np.count_nonzero(items["fresh"]) == fresh.n_tokens
    (cell,) = ngram.result("drafting")["cells"]
    assert cell["all_drafted"] == np.count_nonzero(of_ngrams.joined("top_p")) <= cell["all_tokens"]
    assert cell["all_tokens"] == record.n_tokens  # of the same texts
    assert len(list((results / "runs").glob("*.texts"))) == 1


def test_times_and_what_follows_from_them_is_provenance(results: Path) -> None:
    for row in model_of(results).rows:
        (key,) = row.keys["drafting"]
        written = Store(results).read(key)
        assert "seconds" not in json.dumps(written["result"])
        (part,) = written["provenance"]["drafting"]
        assert len(part["costs"]["verify"]) == 32
        (ran,) = part["runs"]
        assert [its["ratio"] > 0 for its in ran["policies"]] == [True] * 4
        digest = written["digest"]
        part["costs"]["draft"]["seconds"] *= 2
        assert digest_of(written) == digest


def test_gains_are_those_of_replays_on_what_is_kept(results: Path) -> None:
    model = model_of(results)
    row = report.best_row(model, "unquantized")
    part = report.took(row)
    simulation = report.simulation_of(model, row, "unquantized")
    for its in part["best"]["code"]:
        assert simulation.run(its["policy"]).gain == pytest.approx(its["gain"], rel=1e-6)
    # Whatever costs are here: where drafts pay, a text's kept length says whether they still do.
    (path,) = (
        path for path in (results / "runs").glob("*.record") if read_record(path).source.draft != "ngram"
    )
    paying = Costs(0.001, (0.01,) * 8, prompt=0.0001)
    replays = [
        Simulation(record, paying, other_models=True).run("expected_value")
        for record in (simulation.record, pooled([read_record(path)]))
    ]
    assert replays[0].gain == pytest.approx(replays[1].gain, rel=1e-6)
    assert replays[0].gain > 1
    flat = report.flat(row)
    assert flat["drafting_heuristic"] <= flat["drafting_best"] <= flat["drafting_oracle"]
    assert set(flat) == {column.key for column in report.COLUMNS}


def test_the_report_has_tables_and_figures(results: Path) -> None:
    model = model_of(results)
    titles = [title for title, *_ in tables(model)]
    assert any("runs in turns" in title for title in titles)
    assert any("Kluser" in title for title in titles)
    for _, groups, heads, rows in tables(model):
        assert all(len(cells) == len(groups) * len(heads) for _, cells in rows)
    assert len(drawings(model)) == 7
    assert "drafts best" in report.findings(model)[0]
    page = (results / "report.html").read_text()
    assert "Drafting: a quantized model writes ahead" in page
    assert "OPT 6.7B, 25 + 25, thesis" in page


def test_records_that_are_there_are_not_made_again(results: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(results.parent, tmp_path / "copy") / "results"
    (key,) = model_of(copy).rows[1].keys["drafting"]
    store = Store(copy)
    (path,) = (copy / "runs").glob(f"{key}*.record")
    made = path.stat().st_mtime_ns
    result = json.loads(store.path(key).read_text())["result"]
    store.path(key).unlink()
    run_on_the_box(copy.parent, STUDY)
    assert path.stat().st_mtime_ns == made
    assert json.loads(store.path(key).read_text())["result"] == result


def test_an_interrupted_record_goes_on(results: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(results.parent, tmp_path / "copy") / "results"
    (key,) = model_of(copy).rows[1].keys["drafting"]
    (path,) = (copy / "runs").glob(f"{key}*.record")
    header, first, _ = path.read_text().splitlines(keepends=True)
    entry = json.loads(first)
    entry["entropy"][0] = 0.125  # by which it is known again
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(f"{header}{json.dumps(entry)}\n")
    path.unlink()
    Store(copy).path(key).unlink()
    run_on_the_box(copy.parent, STUDY)
    assert not partial.exists()
    assert 0.125 in [text.entropy[0] for text in read_record(path).texts]


@pytest.mark.slow
def test_a_second_target(tmp_path: Path) -> None:
    study = STUDY.replace("[drafting]\n", '[drafting]\ntargets = ["unquantized", "ggml:Q8_0"]\n')
    results = run_on_the_box(tmp_path, study)
    model = model_of(results)
    assert report.targets(model) == ["unquantized", "ggml:Q8_0"]
    for row in model.rows:
        for target in report.targets(model):
            assert report.took(row, target)["target"] == target
    assert report.simulation_of(model, report.best_row(model, "ggml:Q8_0"), "ggml:Q8_0").record.n_tokens
    assert len(drawings(model)) == 10
    assert not list((results / "runs").glob("*.gguf"))


def test_settings_are_checked(tmp_path: Path) -> None:
    for was, becomes, message in [
        ('"code"', '"verse"', "'code', 'prose', 'chat'"),
        ("new = 24", "new = 0", "new"),
        ("texts = 2", "text = 2", "texts"),
    ]:
        config = tmp_path / "study.toml"
        config.write_text(STUDY.replace(was, becomes))
        with pytest.raises(ConfigError, match=message):
            read_study(config, models=[data.model_path()])
