"""Ranks, a metric of one file: what it finds is what the models' logits say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pyquant.evaluate.compare import compare_models
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from pyquant.study.metrics.ranks import CLASSES
from pyquant.study.report.export import export
from pyquant.study.report.tables import results_table
from pyquant.study.results.read import read_results
from pyquant.study.store import Store
from tests.support.studies import LABELS, Lab


@pytest.fixture(scope="module")
def ranked(lab: Lab) -> Path:
    """The results of ranks on one model. Not to be changed."""
    results = lab.folder / "ranked"
    lab.run(results, lab.write("ranks.toml", ["ranks"]))
    return results


def test_items_are_the_models(lab: Lab, ranked: Path, tmp_path: Path) -> None:
    (model,) = read_results(Store(ranked)).models
    path = tmp_path / "q.gguf"
    quantize_model(lab.models[0], path, make_mode({"mode": "q4_0_multizero", "radius": 2}))
    base_scores, scores = compare_models(lab.models[0], [path], lab.text, n_ctx=32, n_chunks=3).scores
    items = model.row("q4_0_multizero 2").measurement("ranks").items()
    np.testing.assert_allclose(items["probability"], np.exp(-scores.nll), rtol=1e-4)
    base = model.rows[0].measurement("ranks").items()
    np.testing.assert_allclose(base["probability"], np.exp(-base_scores.nll), rtol=1e-4)
    assert (items["rank"] == base["rank"]).all()
    # The token at rank n has a probability of 1 / n at most.
    assert (base["rank"] >= 1).all()
    assert (base["probability"] <= 1 / base["rank"] + 1e-6).all()


def test_means_are_of_the_items(ranked: Path) -> None:
    for row in read_results(Store(ranked)).models[0].rows:
        measured = row.measurement("ranks")
        items = measured.items()
        counted = 0
        for name, (first, last) in CLASSES.items():
            mine = items["probability"][(first <= items["rank"]) & (items["rank"] <= last)]
            mean = measured.result[name]
            counted += mean["n_tokens"]
            assert mean["n_tokens"] == len(mine)
            if len(mine) > 1:
                assert mean["mean"] == pytest.approx(mine.mean(), rel=1e-6)
                assert mean["error"] == pytest.approx(mine.std(ddof=1) / len(mine) ** 0.5, rel=1e-4)
        assert counted == len(items["rank"])


def test_it_is_in_tables_and_on_the_page(ranked: Path, tmp_path: Path) -> None:
    rows = results_table(read_results(Store(ranked)))
    assert [row["quantizer"] for row in rows] == LABELS
    assert all(row["right_21+"] > 0 for row in rows)
    page = (ranked / "report.html").read_text()
    assert "Probability of the right token, by its rank" in page
    assert page.count('data-key="right_21+"') == len(LABELS)
    assert json.loads(page.split('id="results">')[1].split("</script>")[0])[0]["ranks"][0]["21+"]
    counts = export(ranked, tmp_path / "items.csv", table="ranks_items")
    assert counts["ranks_items"] == sum(
        len(row.measurement("ranks").items()["rank"]) for row in read_results(Store(ranked)).models[0].rows
    )
    header, first, *_ = (tmp_path / "items.csv").read_text().splitlines()
    assert header == "model,quantizer,text,item,rank,probability"
    assert first.startswith("model-1.gguf,unquantized,text.txt,0,")
