"""Check what a study says of configurations, texts and folders that do not fit."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from pyquant.errors import ConfigError, ModelFileError, StudyError, TextError
from pyquant.study.calibration_config import CalibrationConfig
from pyquant.study.config import StudyConfig, read_study
from pyquant.study.metrics import MEASURABLE
from pyquant.study.quantizer_keys import OfStudies
from pyquant.study.report.tables import items_table, results_table
from pyquant.study.results.read import read_results
from pyquant.study.run import run_study
from pyquant.study.store import Store, digest_of
from tests.support import ROOT
from tests.support.studies import Lab, snapshot


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("qantizer = 1", ["no key 'qantizer'", "did you mean 'quantizer'?"]),
        ("[speed]\nround = 1\n[[quantizer]]\nmode = 'q4_0'", ["'speed.round'", "did you mean 'rounds'?"]),
        ("[[quantizer]]\nmode = 'q4_0_multizero'\nraduis = [1]", ["quantizer 1", "did you mean 'radius'?"]),
        (
            "[[quantizer]]\nmode = 'q4_0_multizero'\nradius = [1, 9]",
            ["quantizer 1", "less than or equal to 7"],
        ),
        ("measure = ['sise']\n[[quantizer]]\nmode = 'q4_0'", ["measure.0", "'size'"]),
        ("title = 'nothing'", ["needs 'quantizer'"]),
        ("[[quantizer]]\nmode = 'q4_0'", ["models: none are given", "--model"]),
        ("models = [1]\n[[quantizer]]\nmode = 'q4_0'", ["models.0"]),
        ("quantizer = ['q4_0']", ["quantizer.0"]),
        ("texts = 5\n[[quantizer]]\nmode = 'q4_0'", ["texts: input should be a valid list"]),
        ("chats = true\n[[quantizer]]\nmode = 'q4_0'", ["chats: input should be a valid list"]),
        (
            "[[calibration]]\nname = ['a']\n[[quantizer]]\nmode = 'q4_0'",
            ["calibration.0.name: input should be a valid string"],
        ),
        ("not toml", ["not a readable TOML file"]),
    ],
)
def test_a_wrong_study_is_explained(tmp_path: Path, toml: str, words: list[str]) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(toml)
    with pytest.raises(ConfigError) as error:
        read_study(path)
    for word in [str(path), *words]:
        assert word in str(error.value)


def test_what_is_refused_before_work_leaves_no_folder(lab: Lab, tmp_path: Path) -> None:
    study = read_study(lab.config, models=[tmp_path / "none.gguf"], texts=[lab.text])
    with pytest.raises(ModelFileError, match=r"none\.gguf"):
        run_study(study, tmp_path / "results", workers=1)
    assert not (tmp_path / "results").exists()


def test_the_thesis_is_a_study() -> None:
    study = read_study(ROOT / "configs" / "thesis.toml", models=[Path("m")], texts=[Path("t")])
    assert [one.label for one in study.quantizers()] == [
        "q4_0", "q4_0_recentred", "q4_0_multizero 1", "q4_0_multizero 2", "q4_0_multizero 3",
        "q8_0", "q8_table basic", "q8_table balanced", "ggml:IQ4_NL", "ggml:Q4_K", "ggml:Q5_0",
    ]  # fmt: skip


def test_every_key_is_in_the_manual() -> None:
    names = ("thesis", "gptq", "compression", "methods", "structured", "drafting")
    manual = "".join((ROOT / "configs" / f"{name}.toml").read_text() for name in names)
    of_metrics = [metric.settings for metric in MEASURABLE if metric.settings]
    for key in [
        key
        for settings in (StudyConfig, CalibrationConfig, OfStudies, *of_metrics)
        for key in settings.model_fields
    ]:
        assert re.search(rf"^(# )?{key} = |^\[+{key}\]+$", manual, re.MULTILINE), key
    for metric in MEASURABLE:
        assert re.search(rf"^#   {metric.name} ", manual, re.MULTILINE), metric.name


def test_a_text_that_is_not_utf8(lab: Lab, tmp_path: Path) -> None:
    latin = tmp_path / "latin.txt"
    latin.write_bytes("señor ".encode("latin-1") * 100)
    study = read_study(lab.config, models=lab.models, texts=[latin])
    with pytest.raises(TextError, match="not UTF-8: byte 2 is 0xf1"):
        run_study(study, tmp_path / "results")
    assert not (tmp_path / "results" / "study.json").exists()


@pytest.mark.parametrize("key", ["models", "texts"])
def test_the_same_file_twice_is_refused(lab: Lab, tmp_path: Path, key: str) -> None:
    files = {"models": lab.models[:1], "texts": [lab.text]}
    study = read_study(lab.config, **{**files, key: files[key] * 2})
    with pytest.raises(ConfigError, match=f"the same {key[:-1]} as"):
        run_study(study, tmp_path / "results")


@pytest.mark.parametrize("name", ["study.json", "run"])
def test_another_versions_folder_is_left_alone(lab: Lab, copied_study: Path, name: str) -> None:
    path = (
        copied_study / name if name == "study.json" else next((copied_study / "runs").glob("quality-*.json"))
    )
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "schema": content["schema"][:-1] + "7"}))
    before = snapshot(copied_study)
    with pytest.raises(StudyError, match=r"written by another version of pyquant.*Nothing was changed"):
        lab.run(copied_study)
    assert snapshot(copied_study) == before


def test_a_folder_with_other_things_is_left_alone(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(StudyError, match=r"not a results folder: 'thesis\.tex' is in it"):
        lab.run(tmp_path)


def test_validate_finds_a_changed_number(copied_study: Path) -> None:
    store = Store(copied_study)
    assert all(store.problem(key) is None for key in store.finished())
    key = next(key for key in store.finished() if key.startswith("quality"))
    path = copied_study / "runs" / f"{key}.json"
    record = json.loads(path.read_text())
    record["result"]["perplexity"] *= 0.99
    path.write_text(json.dumps(record))
    assert "changed since it was written" in store.problem(key)
    path.write_text(path.read_text()[:-100])
    assert "broken" in store.problem(key)


@pytest.mark.parametrize(
    "change", [{"result": "x"}, {"result": {"perplexity": 3}}, {"provenance": None}], ids=str
)
def test_results_that_are_not_what_a_metric_writes(copied_study: Path, change: dict[str, object]) -> None:
    for path in (copied_study / "runs").glob("*.json"):
        record = json.loads(path.read_text()) | change
        path.write_text(json.dumps({**record, "digest": digest_of(record)}))
    results = read_results(Store(copied_study))
    with pytest.raises(StudyError, match="not what this version of pyquant writes"):
        results_table(results)


def test_models_of_results_that_are_not_what_a_study_writes(copied_study: Path) -> None:
    results = read_results(Store(copied_study))
    (model,) = results.models
    hostile = replace(
        results, models=[replace(model, texts=[[]], rows=[replace(model.rows[0], measurements=3)])]
    )
    with pytest.raises(StudyError, match="not what this version of pyquant writes"):
        items_table(hostile, "quality")
