"""Metric structured: what a model generates in a study is what the library says, and goes on where it was."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest

from pyquant import data
from pyquant.errors import ConfigError
from pyquant.generation.structured.measure import measure_structured
from pyquant.generation.structured.tasks import load_task
from pyquant.generation.study.report.generation_times import took
from pyquant.generation.study.report.structured import shares_against, tables_of_tasks
from pyquant.study.config import read_study
from pyquant.study.run import run_study
from pyquant.study.store import Store, digest_of
from tests.support.studies import model_of, run_on_the_box

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


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_on_the_box(tmp_path_factory.mktemp("structured"), STUDY)


def texts_of(store: Store, key: str) -> Path:
    """Return the file of the completions of a run."""
    return store.runs / store.read(key)["result"]["texts"]["file"]


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


def test_all_completions_are_kept(results: Path) -> None:
    for row in model_of(results).rows:
        (key,) = row.keys["structured"]
        written = texts_of(Store(results), key).read_bytes()
        of_run = Store(results).read(key)["result"]["texts"]
        assert of_run["sha256"] == hashlib.sha256(written).hexdigest()
        lines = [json.loads(line) for line in written.splitlines()]
        assert [(line["technique"], line["sample"]) for line in lines] == [
            (technique, sample) for technique in ("free", "grammar") for sample in range(5)
        ]
        measured = row.measurement("structured")
        assert measured is not None
        items = measured.items()
        assert items is not None
        assert len(items["right"]) == 2 * 2 * 5


def test_what_completions_took_is_provenance(results: Path) -> None:
    for row in model_of(results).rows:
        (key,) = row.keys["structured"]
        record = Store(results).read(key)
        assert "seconds" not in json.dumps(record["result"])
        writing = record["provenance"]["writing"]
        assert [(part["task"], part["technique"], part["n"]) for part in writing] == [
            ("arithmetic", "free", 5), ("arithmetic", "grammar", 5),
        ]  # fmt: skip
        for part in writing:
            assert 0 < part["forward_seconds"] + part["sampling_seconds"] <= part["seconds_per_text"]
            assert (part["mask_seconds"] > 0) == (part["technique"] == "grammar")
            assert part["peak_memory"] > 10 << 20
        digest = record["digest"]
        writing[0]["seconds_per_text"] *= 2
        assert digest_of(record) == digest
        cost = took(row, "grammar")
        (longest,) = [
            cell
            for cell in record["result"]["cells"]
            if (cell["technique"], cell["max_tokens"]) == ("grammar", 10)
        ]
        assert cost is not None
        # With the one that ended it; they are a rate times seconds, which is rounded.
        assert round(cost["tokens"], 9) >= longest["tokens_per_text"]


@pytest.mark.ci
def test_a_study_goes_on_at_the_next_completion(results: Path, tmp_path: Path) -> None:
    """Three of ten completions are generated where seven are there and one is cut off: an equal result."""
    results = shutil.copytree(results.parent, tmp_path / "copy") / "results"
    (key,) = model_of(results).rows[0].keys["structured"]
    store = Store(results)
    texts = texts_of(store, key)
    lines = texts.read_bytes().splitlines(keepends=True)
    cells = json.loads(store.path(key).read_text())["result"]["cells"]
    store.path(key).unlink()
    marked = json.loads(lines[0])
    marked["log_p"][0] = -0.125  # would not be there if the completion were generated again
    lines[0] = json.dumps(marked).encode() + b"\n"
    texts.write_bytes(b"".join(lines[:7]) + lines[7][:40])
    config = read_study(results.parent / "study.toml", models=[data.model_path()])
    run_study(config, results, workers=1)
    assert texts.read_bytes() == b"".join(lines)
    written = json.loads(store.path(key).read_text())
    assert written["result"]["cells"] == cells
    assert [part["n"] for part in written["provenance"]["writing"]] == [3]


@pytest.mark.slow
def test_more_samples_go_on_from_fewer(tmp_path: Path) -> None:
    """Completions depend on neither how many there are, nor on which techniques: none is generated twice."""
    fewer = STUDY.replace("samples = 5", "samples = 2").replace('"free", "grammar"', '"grammar"')
    results = run_on_the_box(tmp_path, fewer)
    store = Store(results)
    before = model_of(results).rows[0].keys["structured"][0]
    texts = texts_of(store, before)
    written = [json.loads(line) for line in texts.read_text().splitlines()]
    for text in written:
        text["log_p"][0] = -0.125  # would not be there if the completion were generated again
    texts.write_text("".join(json.dumps(text) + "\n" for text in written))

    (tmp_path / "study.toml").write_text(STUDY)
    config = read_study(tmp_path / "study.toml", models=[data.model_path()], samples=4)
    run_study(config, results, workers=1)
    (key,) = model_of(results).rows[0].keys["structured"]
    assert key != before
    assert texts_of(store, key) == texts
    together = [json.loads(line) for line in texts.read_text().splitlines()]
    assert [(text["technique"], text["sample"]) for text in together] == [
        (technique, sample) for technique in ("free", "grammar") for sample in range(4)
    ]
    assert together[4:6] == written
    record = store.read(key)
    assert [(part["technique"], part["n"]) for part in record["provenance"]["writing"]] == [
        ("free", 4), ("grammar", 2),
    ]  # fmt: skip
    assert {cell["n"] for cell in record["result"]["cells"]} == {4}


def test_samples_override_the_file(tmp_path: Path) -> None:
    config = tmp_path / "study.toml"
    without_table = 'measure = ["structured"]\n' + STUDY[STUDY.index("[[") :]
    for study, default in ((STUDY, 5), (without_table, 100)):
        config.write_text(study)
        for samples, expected in ((7, 7), (None, default)):
            read = read_study(config, models=[data.model_path()], samples=samples)
            assert read.settings_of("structured").samples == expected


def test_the_report_shows_it(results: Path) -> None:
    page = (results / "report.html").read_text()
    assert "Structured output: form and sense" in page
    assert "Task arithmetic, at most 10 tokens (%)" in page
    for score in ("parses", "right"):
        assert re.search(
            rf"Technique grammar, {score}: \d+ % of 5 completions of the unquantized model", page
        )
    assert "García Casasola" in page
    assert "A token under the grammar takes" in page
    assert page.count("<figcaption>Share of completions") == 1


def test_every_score_is_in_a_table(results: Path) -> None:
    model = model_of(results)
    row = model.rows[1]
    cells = {
        (cell["technique"], cell["max_tokens"]): cell for cell in (row.result("structured") or {})["cells"]
    }
    for title, techniques, heads, rows in tables_of_tasks(model):
        length = int(title.split()[-3])
        shown = iter(dict(rows)[row.label])
        for technique in techniques:
            cell = cells[technique, length]
            for head, _ in heads:
                value = next(shown)
                if head in cell["scores"]:
                    share = cell["scores"][head]
                    assert value == "{share:.0f} ({low:.0f}..{high:.0f})".format(
                        **{name: 100 * share[name] for name in ("share", "low", "high")}
                    )
                elif head == "cut off":
                    assert value == f"{100 * cell['cut_off'] / 5:.0f}"
                elif head.startswith("removed"):
                    removed = cell["removed_text" if "/" in head else "removed"]
                    assert value == ("-" if technique == "free" else f"{100 * removed:.1f}")
                elif head == "s":
                    assert float(value) > 0
        assert next(shown, None) is None


def test_without_completions_there_is_no_panel(results: Path) -> None:
    model = model_of(results)
    assert shares_against(model, "right") is not None
    for row in model.rows[1:]:
        (row.result("structured") or {})["cells"].clear()
    assert shares_against(model, "right") is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ('tasks = ["arithmetic"]|tasks = ["cooking"]', "'arithmetic', 'c_function'"),
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
