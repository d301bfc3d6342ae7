"""The studies in configs/: each is sound, and the demo shows quantizers that its study has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analysis import demo
from pyquant.data import model_path
from pyquant.study.config import read_study
from pyquant.study.results.read import read_results
from pyquant.study.run import run_study
from pyquant.study.store import Store
from tests.support import ROOT

STUDIES = [path for path in sorted((ROOT / "configs").glob("*.toml")) if "[[quantizer]]" in path.read_text()]


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_is_sound(path: Path, held_out_text: Path) -> None:
    wanted = ("matched", "followed", "mismatched")
    names = [name for name in wanted if f'name = "{name}"' in path.read_text()]
    texts = [(name, held_out_text) for name in names]
    study = read_study(path, models=[model_path()], texts=[held_out_text], calibration_texts=texts)
    assert study.quantizers()


def test_the_demo_shows_what_its_study_measures(held_out_text: Path) -> None:
    study = read_study(
        ROOT / "configs/demo.toml",
        models=[model_path()],
        texts=[held_out_text],
        calibration_texts=[("matched", held_out_text)],
    )
    labels = {quantizer.label for quantizer in study.quantizers()}
    assert {label.format(type_) for label in demo.WAYS.values() for type_ in demo.TYPES} <= labels
    assert len([label for label in labels if label.startswith("uniform")]) == 2


@pytest.mark.slow
def test_the_demo_shows_what_models_write(
    held_out_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "study.toml"
    text = (ROOT / "configs/demo_structured.toml").read_text()
    config.write_text(
        re.sub("samples = .*", "samples = 2", re.sub(r"mode = \[.*", 'mode = "ggml:Q2_K"', text))
    )
    study = read_study(config, models=[model_path()], texts=[held_out_text])
    run_study(study, tmp_path / "results", workers=1, threads=1)
    demo.show_structured(read_results(Store(tmp_path / "results")).models[0])
    printed = capsys.readouterr().out
    assert "4. What the model writes" in printed
    assert "ggml:Q2_K" in printed
    assert "2 texts in each cell" in printed
