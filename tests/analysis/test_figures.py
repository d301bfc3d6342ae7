"""analysis/figures.py and perplexity.py: every figure of a finished study, the same bytes each time."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from analysis import figures
from pyquant.study.config import read_study
from pyquant.study.run import run_study
from tests.support import ROOT
from tests.support.studies import SAME_EVERYWHERE, Lab


@pytest.mark.slow
def test_every_figure(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = tmp_path / "results"
    study = read_study(ROOT / "configs" / "thesis.toml", models=lab.models[:1], texts=[lab.text], ctx=32)
    run_study(study.model_copy(update={"measure": SAME_EVERYWHERE}), results)
    monkeypatch.syspath_prepend(ROOT / "analysis")
    made = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        for script in ("figures.py", "perplexity.py"):
            monkeypatch.setattr(sys, "argv", [script, str(results), "--output", str(folder)])
            runpy.run_path(str(ROOT / "analysis" / script), run_name="__main__")
        made.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert made[0] == made[1]
    numbers = ("3_1_1", "3_2_1", "3_2_2", "3_3_1", "3_3_2", "4_1_1", "4_1_2", "4_1_3", "4_1_4")
    names = [*(f"figure_{number}" for number in numbers), "kld_for_size", "perplexity"]
    assert made[0].keys() == {f"{name}-model-1.{kind}" for name in names for kind in ("svg", "png")}


def test_a_wrong_name_is_told_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["figures.py", "results", "3.1.1", "-o", "folder", "9.9"])
    with pytest.raises(SystemExit, match=r"^figures.py: there is no figure '9.9'; there are 3.1.1, 3.2.1, "):
        figures.main()
