"""What methods say before their work."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyquant.fit.method.quantize import Quantized, quantize
from tests.support.models import EXPERTS, F32


def planned(source: Path, tmp_path: Path, text: Path, **given: object) -> tuple[Quantized, list[str]]:
    told: list[str] = []
    done = quantize(
        source, tmp_path / "out.gguf", "Q4_0", text=text, hessian=tmp_path / "hessian.gguf", n_ctx=64,
        n_chunks=16, tell=told.append, **given,
    )  # fmt: skip
    return done, told


@pytest.mark.parametrize("method", ["gptq", "best"])
def test_sizes_are_said_before_work(generated, text: Path, tmp_path: Path, method: str) -> None:
    expected, told = planned(generated(F32), tmp_path, text, method=method, dry_run=True)
    assert not list(tmp_path.iterdir())
    assert [line.partition(":")[0] for line in told[:4]] == ["stages", "time", "memory", "disk"]
    done, told_again = planned(generated(F32), tmp_path, text, method=method)
    assert [stage.name for stage in done.stages] == expected.forecast.stages
    assert [line.partition(":")[0] for line in told_again[:4]] == ["stages", "time", "memory", "disk"]
    size = (tmp_path / "hessian.gguf").stat().st_size
    assert expected.forecast.hessian == pytest.approx(
        size, rel=0.25
    )  # headers and kept tokens are not counted
    assert expected.forecast.seconds > 0
    assert done.to_json()["forecast"]["hessian"] == expected.forecast.hessian


def test_what_a_family_has_not_is_no_stage(generated, text: Path, tmp_path: Path) -> None:
    expected, _ = planned(generated(EXPERTS), tmp_path, text, method="best", dry_run=True)
    assert "output-side Hessian" not in expected.forecast.stages


def test_nothing_is_expected_of_rtn(generated, tmp_path: Path) -> None:
    done = quantize(generated(F32), tmp_path / "out.gguf", "Q4_0")
    assert done.forecast is None
