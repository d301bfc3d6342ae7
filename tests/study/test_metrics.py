"""Metrics are found by being there; nothing outside of their files knows one by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pyquant.study
from pyquant.study.config import read_study
from pyquant.study.metrics import MEASURABLE, METRICS
from tests.support.studies import Lab

ROOM = Path(pyquant.study.__file__).parent


def test_metrics_are_in_order() -> None:
    assert [metric.name for metric in METRICS] == [
        "calibrate", "learn", "mix", "own_chat", "sensitivity", "codes", "size", "quality", "ranks",
        "drafting", "structured", "speed",
    ]  # fmt: skip
    assert [metric.name for metric in METRICS if metric.makes_model] == ["size"]


@pytest.mark.parametrize(
    "module",
    ["config", "metric", "store", "plan", "missing", "task", "measure", "run", "results/read",
     "results/columns", "report/tables", "results/figures", "report/html", "report/export"],
)  # fmt: skip
def test_modules_know_no_metric_by_name(module: str) -> None:
    code = (ROOM / f"{module}.py").read_text()
    assert not [metric.name for metric in METRICS if re.search(rf"""['"]{metric.name}['"]""", code)]
    assert not re.search(r"pyquant\.study\.metrics\.", code)


def test_what_is_measured_by_default(lab: Lab, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text("[[quantizer]]\nmode = 'q4_0'\n")
    study = read_study(path, models=lab.models, texts=[lab.text])
    assert [metric.name for metric in study.metrics] == ["codes", "size", "quality", "speed"]


def test_columns_are_cells(finished_study: Path) -> None:
    from pyquant.study.results.read import read_results
    from pyquant.study.store import Store

    row = read_results(Store(finished_study)).models[0].rows[1]
    every: list[str] = []
    for metric in MEASURABLE:
        cells = metric.cells(row, 0)
        every += cells
        for column in metric.columns:
            assert {column.key, column.error or column.key, *(column.ends or ())} <= cells.keys()
    assert len(set(every)) == len(every)
