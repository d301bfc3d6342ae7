"""Quantizers of a study by a method: named like modes, made as `pyquant.quantize` makes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyquant.errors import ConfigError
from pyquant.fit.method.quantize import quantize
from pyquant.fit.mixtures import WantedSize
from pyquant.models.model_file import ModelFile
from pyquant.study.calibration_config import CalibrationConfig
from pyquant.study.config import read_study
from pyquant.study.quantizer import make_quantizers
from pyquant.study.results.comparison import gptq_rows
from pyquant.study.results.tradeoff import points
from pyquant.study.run import run_study
from pyquant.study.size import make_by_method
from tests.support.studies import Lab, model_of

FEW = {"few": CalibrationConfig(name="few", chunks=8)}
STUDY = """
ctx = 32
chunks = 3
measure = ["codes", "size", "quality"]
[[calibration]]
name = "seen"
ctx = 32
chunks = 12
[[quantizer]]
type = "Q4_0"
method = ["rtn", "imatrix", "gptq"]
calibration = "seen"
"""


def test_types_and_sizes_are_named_like_modes() -> None:
    settings = [
        {"type": ["Q4_0", "Q4_K_M"], "method": ["rtn", "best"], "calibration": "few"},
        {"type": ["Q4_0", "q4_0"]},  # there already
        {"mode": "ggml:q4_k_m"},
        {"like": "Q4_K_M", "method": "gptq"},
        {"target_size": "3MB", "method": "best", "calibration": "few"},
        {"target_size": 20, "method": "best", "effort": ["normal", "high"]},
        {"target_bpw": 20, "method": "gptq"},
        {"like": ["q4_k_m", "IQ4_XS"], "method": "gptq"},
    ]
    made = make_quantizers(settings, {}, FEW)
    assert [(one.label, one.alike, one.wanted) for one in made] == [
        ("ggml:Q4_0", "ggml:Q4_0", "Q4_0"),
        ("ggml:Q4_0 best calibration=few", "ggml:Q4_0", "Q4_0"),
        ("ggml:Q4_K_M", "ggml:Q4_K_M", "Q4_K_M"),
        ("ggml:Q4_K_M best calibration=few", "ggml:Q4_K_M", "Q4_K_M"),
        ("recipe mixed:Q4_K_M gptq", "recipe mixed:Q4_K_M", WantedSize(like="Q4_K_M")),
        ("recipe mixed:3MB best calibration=few", "recipe mixed:3MB", WantedSize(target_size=3_000_000)),
        ("recipe mixed:20B best", "recipe mixed:20B", WantedSize(target_size=20)),
        ("recipe mixed:20B best effort=high", "recipe mixed:20B", WantedSize(target_size=20)),
        ("recipe mixed:20 gptq", "recipe mixed:20", WantedSize(target_bpw=20)),
        ("recipe mixed:IQ4_XS gptq", "recipe mixed:IQ4_XS", WantedSize(like="IQ4_XS")),
    ]
    assert [one.knows for one in made[3:5]] == [
        {"name": "few", "how": "best"},
        {"name": "default texts", "how": "gptq"},
    ]


def test_names_of_types_are_the_same_in_lower_case() -> None:
    settings = {"mode": "ecsq", "hessian": "few", "like": ["Q4_K_M", "q4_k_m"]}
    (one,) = make_quantizers([settings], {}, FEW)
    assert one.label == "ecsq hessian=few like Q4_K_M"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"type": "Q4_0", "mode": "q4_0"}, "type: means mode ggml:TYPE"),
        ({"type": "Q4_KM", "method": "best"}, "did you mean"),
        ({"type": "Q4_0", "method": "bets"}, "'rtn', 'imatrix', 'gptq' or 'best'"),
        ({"type": "Q4_0", "calibration": "few"}, "calibration: is of methods"),
        ({"type": "Q4_0", "method": "gptq", "calibration": "fwe"}, "did you mean 'few'"),
        (
            {"type": "Q4_0", "method": "gptq", "hessian": "few"},
            "hessian: is of modes; method gptq",
        ),
        ({"type": "Q4_0", "method": "gptq", "pqz": True}, "pqz: a method makes a GGUF"),
        ({"type": "Q4_0", "method": "gptq", "like": "Q4_0"}, "give no type or mode beside it"),
        ({"like": "Q4_0"}, "like: is for methods gptq and best, or mode ecsq"),
        ({"like": "Q4_0", "target_bpw": 4, "method": "gptq"}, "target_bpw: is a size, and like another"),
        ({"target_bpw": 45, "method": "gptq"}, "target_bpw: expected a number above 0 to 32, got 45"),
        ({"type": []}, "type: an empty list"),
        ({"type": "Q4_0", "effort": "high"}, "effort: is of methods gptq and best"),
        ({"type": "Q4_0", "method": "imatrix", "effort": "high"}, "effort: gptq and best train scales"),
        ({"like": "Q4_0", "method": "imatrix"}, "gptq and best mix types"),
        ({"mode": "q4_0", "method": "gptq"}, "gptq makes a type or a size"),
        ({"target_size": "3 parsec", "method": "gptq"}, "'3 parsec' is not a size"),
        ({"type": "Q4_0", "method": "gptq", "calibration": "rows"}, "rows: output_side: method gptq decides"),
    ],
)
def test_what_is_refused(settings: dict, says: str) -> None:
    calibrations = FEW | {"rows": CalibrationConfig(name="rows", output_side=3)}
    with pytest.raises(ConfigError, match=f"quantizer 1: .*{says}"):
        make_quantizers([settings], {}, calibrations)


def test_files_are_those_of_the_library(lab: Lab, tmp_path: Path) -> None:
    path = tmp_path / "methods.toml"
    path.write_text(STUDY)
    seen = [("seen", lab.text)]
    study = read_study(path, models=lab.models[:1], texts=[lab.text], calibration_texts=seen)
    run_study(study, tmp_path / "results", workers=1)
    model = model_of(tmp_path / "results")
    for method in ("imatrix", "gptq"):
        size = model.row(f"ggml:Q4_0 {method} calibration=seen").result("size")
        output = tmp_path / f"{method}.gguf"
        done = quantize(lab.models[0], output, "Q4_0", method=method, text=lab.text, n_ctx=32, n_chunks=12)
        assert size["sha256"] == ModelFile(output).sha256()
        assert size["stages"] == done.to_json()["stages"]
    assert [row.result("codes") is None for row in model.rows[1:]] == [False, True, True]
    (row,) = gptq_rows(model, 0)
    assert (row["quantizer"], row["calibration"]) == ("ggml:Q4_0", "seen")
    assert row["rtn_kld"] == model.rows[2].result("quality")["kld"]["mean"]
    families = [point.family.name for point in points(model, 0)]
    assert families == ["stock types", "stock types with imatrix", "stock types, GPTQ"]


def test_a_killed_method_goes_on_and_leaves_nothing(lab: Lab, tmp_path: Path) -> None:
    file, shares = tmp_path / "out.gguf", list[float]()

    def stop(share: float, what: str) -> None:
        shares.append(share)
        if what.startswith("GPTQ"):
            raise KeyboardInterrupt

    def again(share: float, what: str) -> None:
        shares.append(share)
        assert not what.startswith("imatrix")

    options = {"wanted": "Q4_0", "method": "gptq", "text": lab.text, "n_ctx": 32, "n_chunks": 12}
    with pytest.raises(KeyboardInterrupt):
        make_by_method(lab.models[0], file, None, stop, **options)
    assert shares == sorted(shares)
    assert 0 < shares[-1] < 1
    shares.clear()
    made = make_by_method(lab.models[0], file, None, again, **options)
    assert shares == sorted(shares)
    assert made["bytes"] == file.stat().st_size
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
