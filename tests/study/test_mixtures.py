"""Recipes that a study finds: a row whose types `pyquant mix` chooses for a size."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyquant.calibration.calibrate import calibrate_model
from pyquant.errors import ConfigError
from pyquant.fit.mixtures import WantedSize, read_wanted_size
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from pyquant.study.config import read_study
from pyquant.study.plan import make_plan
from pyquant.study.results.figures import figure
from pyquant.study.results.read import read_results
from pyquant.study.results.tradeoff import points, tradeoff
from pyquant.study.run import Summary, run_study
from pyquant.study.store import Store
from tests.support.models import Model

STUDY = """
measure = ["size", "quality"]
ctx = 32
chunks = 4
[[calibration]]
name = "in_domain"
ctx = 32
texts = ["in_domain.txt"]
[[quantizer]]
mode = "ggml:Q4_0"
imatrix = "in_domain"
[[quantizer]]
mode = "recipe"
recipe = ["mixed:Q4_0", "mixed:6.5"]
hessian = "in_domain"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "in_domain.txt").write_text("the rain in the hen then tin ant " * 60)
    (tmp_path / "text.txt").write_text("an ant in the rain then " * 60)
    Model(n_layer=1, seed=1).write(tmp_path / "model.gguf")
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path / "study.toml"


def test_codes_of_a_recipe_that_is_yet_to_be_found_are_not_counted(config: Path, tmp_path: Path) -> None:
    config.write_text(STUDY.replace('measure = ["size", "quality"]', ""))
    study = read_study(config, models=[tmp_path / "model.gguf"], texts=[tmp_path / "text.txt"])
    with Store(tmp_path / "results") as store:
        plan = make_plan(study, store)
    counted = [row.label for row in plan.rows if ("codes", None) in row.runs]
    assert counted == ["ggml:Q4_0 imatrix=in_domain"]


@pytest.mark.ci
def test_a_size_gets_its_recipe(config: Path, tmp_path: Path) -> None:
    def run() -> Summary:
        study = read_study(config, models=[tmp_path / "model.gguf"], texts=[tmp_path / "text.txt"])
        return run_study(study, tmp_path / "results", workers=1)

    run()
    (model,) = read_results(Store(tmp_path / "results")).models
    labels = ["unquantized", "ggml:Q4_0 imatrix=in_domain", *(
        f"recipe hessian=in_domain mixed:{size}" for size in ("Q4_0", "6.5")
    )]  # fmt: skip
    assert [row.label for row in model.rows] == labels
    calibrate_model(tmp_path / "model.gguf", [tmp_path / "in_domain.txt"], tmp_path / "stats", n_ctx=32)
    assert len(list((tmp_path / "results/calibration").glob("mix-*.toml"))) == 2
    sizes = [row.result("size") for row in model.rows]
    mode = make_mode({"mode": "ggml:Q4_0", "hessian": tmp_path / "stats"})
    stock = quantize_model(tmp_path / "model.gguf", tmp_path / "stock.gguf", mode)
    assert sizes[2]["bytes"] <= stock.output_bytes
    assert sizes[3]["bits"] <= 6.5
    drawn = points(model, 0)
    assert [point.family.name for point in drawn] == [
        "stock types with imatrix", *["mixtures found, GPTQ"] * 2,
    ]  # fmt: skip
    assert [point.bits for point in drawn] == [size["bits"] for size in sizes[1:]]
    (axes,) = figure(tradeoff(model, 0)).axes
    assert axes.get_xlabel() == "bits per weight of the whole file"
    assert run().made == 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mixed:6.5", "mixed:Q4_X", "quantizer 2: recipe: 'Q4_X' is none of a size such as 92MB"),
        ("mixed:6.5", "mixed:nan", "quantizer 2: recipe: 'nan' is none of"),
        ('hessian = "in_domain"\n', "", "quantizer 2: recipe: one is found with a calibration"),
        (
            'hessian = "in_domain"\n',
            'hessian = "imatrix:in_domain"\n',
            "recipe: one is found with a cal",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(config: Path, old: str, new: str, message: str) -> None:
    head, mark, tail = config.read_text().partition('mode = "recipe"')
    config.write_text(head + mark + tail.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        read_study(config, models=[config.parent / "model.gguf"], texts=[config.parent / "text.txt"])


def test_sizes_are_read() -> None:
    assert read_wanted_size("size", "Q4_K_M") == WantedSize(like="Q4_K_M")
    assert read_wanted_size("size", "92MB") == WantedSize(target_size=92_000_000)
    assert read_wanted_size("size", "4.5") == WantedSize(target_bpw=4.5)
    wanted = WantedSize(like="Q4_0"), WantedSize(1000), WantedSize(target_bpw=4.5)
    assert [str(size) for size in wanted] == [
        "Q4_0", "1,000 bytes", "4.5 bits",
    ]  # fmt: skip
