"""Names of a study's quantizers: each has one of its own, as short as it can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyquant.study.calibration_config import CalibrationConfig
from pyquant.study.quantizer import make_quantizers


@pytest.mark.parametrize(
    ("common", "quantizers", "labels"),
    [
        ({"pure": [True, False]}, [{"type": "Q4_K"}], ["ggml:Q4_K pure", "ggml:Q4_K"]),
        ({"pure": [True]}, [{"type": "Q4_K"}], ["ggml:Q4_K"]),
        (
            {"pure": True},
            [{"type": "Q4_K"}, {"type": "Q4_K", "pure": False}],
            ["ggml:Q4_K pure", "ggml:Q4_K"],
        ),
        (
            {"mode": "ggml:Q4_0"},
            [{"imatrix": ["a/x.imatrix", "b/x.imatrix", "a/x.gguf"]}],
            [f"ggml:Q4_0 imatrix={name}" for name in ("a/x.imatrix", "b/x.imatrix", "a/x.gguf")],
        ),
        (
            {"mode": "ggml:Q4_0"},
            [{"hessian": ["a/x.imatrix", "b/x.imatrix"]}],
            [f"ggml:Q4_0 hessian={name}" for name in ("a/x", "b/x")],
        ),
        (
            {"mode": "ggml:Q4_0"},
            [{"hessian": ["in_domain", "in_domain.stats"]}],
            [f"ggml:Q4_0 hessian={name}" for name in ("in_domain", "in_domain.stats")],
        ),
        (
            {"mode": "ecsq", "hessian": "in_domain", "step": 0.01},
            [{"pqz": [True, False]}],
            ["ecsq", "ecsq gguf"],
        ),
    ],
)
def test_quantizers_have_names_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, common: dict, quantizers: list[dict], labels: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("a/x.imatrix", "b/x.imatrix", "a/x.gguf", "in_domain.stats"):
        Path(file).parent.mkdir(exist_ok=True)
        Path(file).touch()
    made = make_quantizers(quantizers, common, {"in_domain": CalibrationConfig(name="in_domain")})
    assert [one.label for one in made] == labels


def test_files_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.stats").touch()
    files = [str(tmp_path / folder / "x.stats") for folder in ("a", "b")]
    made = make_quantizers([{"mode": "table", "table": "learned:kind", "hessian": files}], {}, {})
    assert [one.knows for one in made] == [{"name": name, "how": "gptq"} for name in ("a/x", "b/x")]
