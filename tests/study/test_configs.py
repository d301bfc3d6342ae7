"""The studies in configs/: each is sound, and the demo shows quantizers that its study has."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis import demo
from pyquant.data import model_path
from pyquant.study.config import read_study
from tests.support import ROOT

STUDIES = [path for path in sorted((ROOT / "configs").glob("*.toml")) if "[[quantizer]]" in path.read_text()]


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_is_sound(path: Path, held_out_text: Path) -> None:
    wanted = ("in_domain", "followed", "out_of_domain")
    names = [name for name in wanted if f'name = "{name}"' in path.read_text()]
    texts = [(name, held_out_text) for name in names]
    study = read_study(path, models=[model_path()], texts=[held_out_text], calibration_texts=texts)
    assert study.quantizers()


def test_the_demo_shows_what_its_study_measures(held_out_text: Path) -> None:
    study = read_study(
        ROOT / "configs/demo.toml",
        models=[model_path()],
        texts=[held_out_text],
        calibration_texts=[("in_domain", held_out_text)],
    )
    labels = {quantizer.label for quantizer in study.quantizers()}
    assert {label.format(type_) for label in demo.WAYS.values() for type_ in demo.TYPES} <= labels
    assert set(demo.METHODS.values()) <= labels
    assert len([label for label in labels if label.startswith("ecsq")]) == 2
