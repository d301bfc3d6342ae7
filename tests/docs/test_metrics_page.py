"""The metric that docs/metrics.md shows is one, and finds what the library says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pyquant.inspect.error_map import measure_error
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from pyquant.study.metrics import Metric
from pyquant.study.task import Task
from tests.support import ROOT


def test_the_metric_of_the_page_measures(
    generated: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Metric, "registry", dict(Metric.registry))
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/metrics.md").read_text(), re.DOTALL)
    exec(compile(code, "docs/metrics.md", "exec"), {"__name__": "weight_error"})
    metric = Metric.registry["weight_error"]
    base, quantized = generated("f32, rows of 64 and 96"), tmp_path / "q4_0.gguf"
    mode = make_mode({"mode": "q4_0"})
    quantize_model(base, quantized, mode)
    files = (base, quantized)
    task = Task("weight error", "weight_error", base, modes=(None, mode), files=files, runs=(None, None))
    results = metric.run(task, 1, lambda share, work: None)
    assert [measured.result for measured in results] == [
        {"snr_db": None},
        {"snr_db": measure_error(base, quantized).total.snr_db},
    ]
