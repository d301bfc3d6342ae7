"""Names of a study's quantizers: each has one of its own, as short as it can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyquant.study.calibration_config import CalibrationConfig
from pyquant.study.quantizer import FILES, make_quantizers


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
            [{"hessian": ["x", "x.stats"]}],
            [f"ggml:Q4_0 hessian={name}" for name in ("x", "files/x")],
        ),
        (
            {"mode": "ecsq", "hessian": "x", "step": 0.01},
            [{"pqz": [True, False]}],
            ["ecsq", "ecsq gguf"],
        ),
    ],
)
def test_quantizers_have_names_of_their_own(
    tmp_path: Path, common: dict, quantizers: list[dict], labels: list[str]
) -> None:
    files = {
        name: tmp_path / "files" / name for name in ("a/x.imatrix", "b/x.imatrix", "a/x.gguf", "x.stats")
    }
    for file in files.values():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()

    def placed(value: object) -> object:
        return [str(files.get(one, one)) for one in value] if isinstance(value, list) else value

    quantizers = [
        {key: placed(value) if key in FILES else value for key, value in one.items()} for one in quantizers
    ]
    made = make_quantizers(quantizers, common, {"x": CalibrationConfig(name="x")})
    assert [one.label for one in made] == labels


def test_files_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.stats").touch()
    files = [str(tmp_path / folder / "x.stats") for folder in ("a", "b")]
    made = make_quantizers([{"mode": "table", "table": "learned:kind", "hessian": files}], {}, {})
    assert [one.knows for one in made] == [{"name": name, "how": "gptq"} for name in ("a/x", "b/x")]
