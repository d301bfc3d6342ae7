"""Studies that calibrate, learn tables, measure sensitivities and search steps before they quantize."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pyquant.calibration.calibrate import calibrate_model
from pyquant.errors import ConfigError
from pyquant.evaluate.compare import compare_models
from pyquant.fit.learn_tables import learn_tables
from pyquant.rounding.quantize_model import quantize_model
from pyquant.rounding.to_pqz import quantize_to_pqz
from pyquant.schemes.settings import make_mode
from pyquant.study import prerequisites
from pyquant.study.calibration_config import CalibrationConfig
from pyquant.study.config import read_study
from pyquant.study.metrics import Metric
from pyquant.study.missing import tasks
from pyquant.study.plan import make_plan
from pyquant.study.prerequisites import CalibrationInputs, quantizer_inputs
from pyquant.study.quantizer import Reference, make_quantizers
from pyquant.study.report.tables import results_table
from pyquant.study.results.comparison import gptq_rows, gptq_table
from pyquant.study.results.figures import figure
from pyquant.study.results.read import ModelResults, read_results
from pyquant.study.results.tradeoff import points, tradeoff
from pyquant.study.run import Summary, run_study
from pyquant.study.store import Store
from tests.support import ROOT
from tests.support.models import Model
from tests.support.studies import contents, start, wait_for

STUDY = """
ctx = 32
chunks = 3
measure = ["size", "quality"]
[common]
tensors = "blk"
[[calibration]]
name = "in_domain"
ctx = 32
texts = ["in_domain.txt"]
[[calibration]]
name = "out_of_domain"
ctx = 32
texts = ["out_of_domain.txt"]
chunks = 8
[[quantizer]]
mode = "ggml:IQ4_NL"
imatrix = "in_domain"
[[quantizer]]
mode = "ggml:IQ4_NL"
hessian = ["in_domain", "out_of_domain"]
[[quantizer]]
mode = "table"
table = "learned:kind"
hessian = "in_domain"
[[quantizer]]
mode = "ecsq"
hessian = ["in_domain", "imatrix:in_domain"]
sensitivity = "measured"
code_bits = 4.0
"""
LABELS = [
    "unquantized", "ggml:IQ4_NL imatrix=in_domain", "ggml:IQ4_NL hessian=in_domain",
    "ggml:IQ4_NL hessian=out_of_domain", "table hessian=in_domain learned:kind",
    "ecsq hessian=in_domain sensitivity=measured 4 bits",
    "ecsq hessian=imatrix:in_domain sensitivity=measured 4 bits",
]  # fmt: skip
MEASURED = ("size", "quality")  # as STUDY says
N_PREREQUISITES = 4  # two calibrations, tables, sensitivities


class Bench:
    """A study in a folder, with its texts and its model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "study.toml"
        self.config.write_text(STUDY)
        (folder / "in_domain.txt").write_text("the rain in the hen then tin ant " * 40)
        (folder / "out_of_domain.txt").write_text("a shark has seen the last tree " * 40)
        self.text = folder / "text.txt"
        self.text.write_text("an ant in the rain then " * 30)
        self.model = Model(n_layer=1, seed=1).write(folder / "model.gguf")

    def run(self, results: Path) -> Summary:
        study = read_study(self.config, models=[self.model], texts=[self.text])
        return run_study(study, results, workers=1)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"))


@pytest.fixture(scope="module")
def results(bench: Bench) -> Path:
    """Results of the whole study. Not to be changed."""
    bench.run(bench.folder / "results")
    return bench.folder / "results"


@pytest.fixture(scope="module")
def model(results: Path) -> ModelResults:
    (found,) = read_results(Store(results)).models
    return found


@pytest.mark.ci
def test_everything_is_made_once(bench: Bench, results: Path, model: ModelResults, tmp_path: Path) -> None:
    assert [row.label for row in model.rows] == LABELS
    kinds = [path.name.partition("-")[0] for path in (results / "runs").glob("*.json")]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "calibrate": 2, "learn": 1, "sensitivity": 1, "size": len(LABELS), "quality": len(LABELS),
    }  # fmt: skip
    assert list((results / "models").iterdir()) == []
    assert not list((results / "calibration").glob("*.stats"))
    again = Path(shutil.copytree(results, tmp_path / "again"))
    assert bench.run(again).made == 0


@pytest.mark.ci
def test_files_are_the_librarys(bench: Bench, model: ModelResults, tmp_path: Path) -> None:
    stats, imatrix, tables = (tmp_path / name for name in ("stats", "imatrix", "tables.toml"))
    calibrate_model(bench.model, [bench.folder / "in_domain.txt"], stats, n_ctx=32, imatrix=imatrix)
    learned = learn_tables(bench.model, per="kind", hessian=stats)
    tables.write_text(learned.to_toml())
    made = {
        "ggml:IQ4_NL hessian=in_domain": {"mode": "ggml:IQ4_NL", "hessian": stats},
        "table hessian=in_domain learned:kind": {
            "mode": "table",
            "table": str(tables),
            "hessian": stats,
        },
    }
    for label, settings in made.items():
        path = tmp_path / f"{len(label)}.gguf"
        report = quantize_model(bench.model, path, make_mode({**settings, "tensors": "blk"})).to_json()
        row = model.row(label)
        assert row.result("size")["snr_db"] == report["snr_db"]
        n_bytes = sum(tensor["n_bytes"] for tensor in report["tensors"])  # files name other paths
        assert row.result("size")["tensor_bits"] == 8 * n_bytes / report["n_weights"]
        (alone,) = compare_models(bench.model, [path], bench.text, n_ctx=32, n_chunks=3).to_json()[
            "candidates"
        ]
        assert row.result("quality")["kld"]["mean"] == pytest.approx(alone["kld"]["mean"], rel=1e-4)
    assert model.row("ggml:IQ4_NL hessian=in_domain").result("size")["code_bits"] == 4.5


@pytest.mark.slow
def test_a_pqz_row_takes_its_bits(bench: Bench, model: ModelResults, tmp_path: Path) -> None:
    for label in LABELS[-2:]:
        size = model.row(label).result("size")
        assert 3.8 < size["code_bits"] <= 4.01
        assert size["tensor_bits"] < size["bits"] == pytest.approx(8 * size["bytes"] / size["n_weights"])
    mode = make_mode({"mode": "q4_0_multizero", "radius": 2, "tensors": "blk"})
    report = quantize_to_pqz(bench.model, tmp_path / "m.pqz", mode).to_json()
    study = tmp_path / "pqz.toml"
    study.write_text(
        "measure = ['size']\n[[quantizer]]\n"
        + _toml(mode="q4_0_multizero", radius=2, tensors="blk", pqz=True)
    )
    run_study(read_study(study, models=[bench.model]), tmp_path / "r", workers=1)
    (found,) = read_results(Store(tmp_path / "r")).models
    assert found.rows[1].label == "q4_0_multizero tensors=blk 2 pqz"
    assert (
        found.rows[1].result("size")["bytes"] == report["output_bytes"] == (tmp_path / "m.pqz").stat().st_size
    )


def test_costs_are_told(results: Path) -> None:
    rows = {row["quantizer"]: row for row in results_table(read_results(Store(results)))}
    assert rows["unquantized"]["seconds"] is None
    for label in LABELS[1:]:
        row = rows[label]
        assert 0 < row["seconds"] < row["seconds"] + row["seconds_before"]
        assert 10e6 < row["peak_memory"] < 10e9
    assert rows[LABELS[5]]["seconds_before"] > rows[LABELS[2]]["seconds_before"]


def test_gptq_is_compared(results: Path, model: ModelResults) -> None:
    rows = {(row["quantizer"], row["calibration"]): row for row in gptq_rows(model, 0)}
    assert list(rows) == [
        ("ggml:IQ4_NL", "in_domain"), ("ggml:IQ4_NL", "out_of_domain"),
        ("table learned:kind", "in_domain"), ("ecsq 4 bits", "in_domain"),
    ]  # fmt: skip

    def kld(label: str) -> float:
        return model.row(label).result("quality")["kld"]["mean"]

    in_domain = rows["ggml:IQ4_NL", "in_domain"]
    assert in_domain["ratio"] == kld(LABELS[2]) / kld(LABELS[1]) == in_domain["ratio_to_best"]
    assert rows["ggml:IQ4_NL", "out_of_domain"]["ratio"] is None
    ecsq = rows["ecsq 4 bits", "in_domain"]
    assert ecsq["ratio"] == kld(LABELS[5]) / kld(LABELS[6])
    assert ecsq["ratio_to_best"] == kld(LABELS[5]) / kld(LABELS[1])
    assert ecsq["best"] == "ggml:IQ4_NL"
    assert [row["kld"] for row in gptq_table(read_results(Store(results)))] == [
        row["kld"] for row in rows.values()
    ]
    assert "calibration out_of_domain" in (results / "report.html").read_text()


def test_the_figure_has_every_quantizer(model: ModelResults) -> None:
    found = points(model, 0)
    assert [(one.family.name, one.calibration) for one in found] == [
        ("stock types with imatrix", "in_domain"), ("stock types, GPTQ", "in_domain"),
        ("stock types, GPTQ", "out_of_domain"), ("tables", "in_domain"),
        ("ecsq, GPTQ", "in_domain"), ("ecsq", "in_domain"),
    ]  # fmt: skip
    for one, row in zip(found, model.rows[1:]):
        assert (one.bits, one.kld) == (row.result("size")["code_bits"], row.result("quality")["kld"]["mean"])
    (axes,) = figure(tradeoff(model, 0), height=4).axes
    assert axes.get_yscale() == "log"
    (slope,) = [line for line in axes.lines if line.get_linestyle() == ":"]
    (x0, x1), (y0, y1) = slope.get_data()
    assert y0 / y1 == pytest.approx(4 ** (x1 - x0))


@pytest.mark.slow
def test_a_changed_text_makes_what_depends_on_it(bench: Bench, results: Path, tmp_path: Path) -> None:
    other = Bench(tmp_path)
    (tmp_path / "out_of_domain.txt").write_text("one other text, neither this nor that " * 40)
    again = Path(shutil.copytree(results, tmp_path / "results"))
    done = other.run(again)
    # The calibration, and size and quality of the one quantizer.
    assert (done.made, done.kept) == (3, len(contents(results)) - 3)
    new = contents(again).keys() - contents(results).keys()
    assert sorted(name.partition("-")[0] for name in new) == ["calibrate", "quality", "size"]


def test_keys_of_calibrations(bench: Bench, tmp_path: Path) -> None:
    def keys(**change: object) -> set[str]:
        study = read_study(bench.config, models=[bench.model], texts=[bench.text])
        in_domain = study.calibration[0].model_copy(update=change)
        study = study.model_copy(update={"calibration": [in_domain, study.calibration[1]]})
        with Store(tmp_path / "results") as store:
            return {run.key for run in make_plan(study, store).runs()}

    every = keys()
    for change in (
        {"chunks": 5}, {"ctx": 64}, {"weights": [2.0]}, {"random": 0.0}, {"process_output": True},
    ):  # fmt: skip
        same = every & keys(**change)
        # The model itself, the out_of_domain calibration and its quantizer.
        kinds = sorted(key.partition("-")[0] for key in same)
        assert kinds == ["calibrate", "quality", "quality", "size", "size"], change


def test_each_number_of_propagated_chunks_has_another_key() -> None:
    gptq = {"mode": "ggml:Q4_0", "hessian": "in_domain"}
    every = [gptq | {"error_propagation": n} for n in (8, 16)]
    few, many = make_quantizers(every, {}, {"in_domain": CalibrationConfig(name="in_domain")})
    in_domain = {"in_domain": CalibrationInputs([], [], None, None, 0.25)}
    assert quantizer_inputs(few, in_domain, {}) != quantizer_inputs(many, in_domain, {})


@pytest.mark.parametrize("changed", ["GPTQ_VERSION", "PROPAGATED_VERSION"])
def test_a_file_that_comes_out_otherwise_has_another_key(
    changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = {"mode": "ggml:Q4_0"}
    gptq = stock | {"hessian": "in_domain"}
    every = [gptq | {"error_propagation": 8}, gptq, stock]
    quantizers = make_quantizers(every, {}, {"in_domain": CalibrationConfig(name="in_domain")})
    in_domain = {"in_domain": CalibrationInputs([], [], None, None, 0.25)}
    before = [quantizer_inputs(quantizer, in_domain, {}) for quantizer in quantizers]
    monkeypatch.setattr(prerequisites, changed, 99)
    after = [quantizer_inputs(quantizer, in_domain, {}) for quantizer in quantizers]
    same = [a == b for a, b in zip(before, after)]
    assert same == [False, changed == "PROPAGATED_VERSION", True]


@pytest.mark.parametrize(
    ("raised", "kinds"),
    [
        ("calibrate", {"calibrate", "sensitivity", "mix", *MEASURED}),
        ("sensitivity", {"sensitivity", "mix", *MEASURED}),
        ("mix", {"mix", *MEASURED}),
    ],
)
def test_a_new_version_makes_what_depends_on_it(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: str, kinds: set[str]
) -> None:
    path = bench.folder / "mixed.toml"
    path.write_text(STUDY + "[[quantizer]]\n" + _toml(mode="recipe", recipe="mixed:6.5", hessian="in_domain"))
    study = read_study(path, models=[bench.model], texts=[bench.text])
    with Store(tmp_path / "results") as store:
        before = {run.key for run in make_plan(study, store).runs()}
        monkeypatch.setattr(type(Metric.registry[raised]), "version", 99)
        after = {run.key for run in make_plan(study, store).runs()}
    assert {key.partition("-")[0] for key in after - before} == kinds


def test_tasks_have_names_of_their_own(bench: Bench, tmp_path: Path) -> None:
    path = bench.folder / "both.toml"
    path.write_text(STUDY.replace('hessian = "in_domain"\n', 'hessian = ["in_domain", "out_of_domain"]\n'))
    study = read_study(path, models=[bench.model], texts=[bench.text])
    with Store(tmp_path / "results") as store:
        todo = tasks(make_plan(study, store), store)
    names = [task.name for task in todo]
    assert len(set(names)) == len(names)
    assert sum(task.metric == "learn" for task in todo) == 2
    made = {
        file for task in todo if task.metric in ("calibrate", "learn", "sensitivity") for file in task.files
    }
    for task in todo:
        assert task.after <= set(names)
        if task.metric == "size" and task.modes[0] and task.modes[0].mode == "table":
            assert len(task.after) == 2
    assert len(made) == 2 * 2 + 2 + 1


@pytest.mark.slow
def test_killed_while_it_calibrates_it_goes_on(bench: Bench, results: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pyquant", "study", "run", bench.config, "--model", bench.model]
    command += ["--text", bench.text, "--results", tmp_path / "results", "--workers", "1"]
    words = [str(word) for word in command]
    process = start(words)
    folder = tmp_path / "results" / "calibration"
    wait_for(lambda: any(folder.glob(".calibrate-*")), process)
    process.kill()
    process.communicate()
    assert contents(tmp_path / "results").items() <= contents(results).items()
    subprocess.run(words, check=True, capture_output=True)
    assert contents(tmp_path / "results") == contents(results)
    assert not list(folder.glob(".*"))


def _toml(**settings: object) -> str:
    return "\n".join(f"{key} = {json.dumps(value)}" for key, value in settings.items()) + "\n"


@pytest.mark.parametrize(
    ("key", "value", "ending", "inputs"),
    [
        ("code_bits", 4.0, "4 bits", {"code_bits": 4.0}),
        ("target_bpw", 5.5, "5.5 bits in all", {"target_bpw": 5.5}),
        ("target_size", "3MB", "3,000,000 bytes", {"target_size": 3_000_000}),
        ("like", "Q4_K", "like Q4_K", {"like": {"type": "Q4_K", "n_ctx": 32}}),
    ],
)
def test_targets_are_in_labels_and_keys(key: str, value: object, ending: str, inputs: dict) -> None:
    settings = {"mode": "ecsq", "hessian": "in_domain", key: value}
    (quantizer,) = make_quantizers([settings], {}, {"in_domain": CalibrationConfig(name="in_domain")})
    assert quantizer.label == f"ecsq hessian=in_domain {ending}"
    in_domain = CalibrationInputs([], [], None, None, 0.25)
    made_of = quantizer_inputs(quantizer, {"in_domain": in_domain}, {"n_ctx": 32})
    assert inputs.items() <= made_of.items()
    assert "step" not in made_of


IN_DOMAIN = '[[calibration]]\nname = "in_domain"\ntexts = ["in_domain.txt"]\n'
ECSQ = {"mode": "ecsq", "hessian": "in_domain"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (ECSQ | {"hessian": "in_domian", "code_bits": 4.0}, ["'in_domian'", "did you mean 'in_domain'?"]),
        ({"mode": "ecsq", "code_bits": 4.0}, ["ecsq needs 'hessian'"]),
        (ECSQ, ["ecsq needs 'step'"]),
        (ECSQ | {"code_bits": 4.0, "step": 0.01}, ["one of step, target_bpw, target_size,"]),
        (ECSQ | {"code_bits": 4.0, "like": "Q4_K"}, ["one of step, target_bpw, target_size,"]),
        (ECSQ | {"code_bits": 9.0}, ["code_bits", "above 0 to 6.5"]),
        (ECSQ | {"like": "Q4_Z"}, ["like", "'ggml:Q4_Z' is no type"]),
        (ECSQ | {"like": "Q4_K"}, ["like: needs a metric that is measured on texts"]),
        ({"mode": "q4_0", "code_bits": 4.0}, ["for mode ecsq"]),
        ({"mode": "table", "table": "learned:row"}, ["learned:model, learned:kind, learned:tensor"]),
        ({"mode": "q8_table", "table": "learned:kind"}, ["table: mode table takes"]),
        (
            ECSQ | {"hessian": "study.toml", "step": 1.0, "sensitivity": "measured"},
            ["sensitivity: measured on", "is none"],
        ),
        ({"mode": "q4_0", "hessian": "in_domain", "imatrix": "in_domain"}, ["give either"]),
        ({"mode": "q4_0", "pqz": "maybe"}, ["pqz"]),
        ({"mode": "q4_0", "hessian": "empty"}, ["texts: none", "--calibration-text empty=FILE"]),
    ],
)  # fmt: skip
def test_a_wrong_quantizer_is_explained(bench: Bench, settings: dict, words: list[str]) -> None:
    path = bench.folder / "wrong.toml"
    calibrations = f"{IN_DOMAIN}[[calibration]]\nname = 'empty'\n"
    path.write_text(f"measure = ['size']\n{calibrations}[[quantizer]]\n{_toml(**settings)}")
    with pytest.raises(ConfigError) as error:
        read_study(path, models=[bench.model])
    for word in [str(path), *words]:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        (IN_DOMAIN + IN_DOMAIN, ["two have the same name"]),
        (IN_DOMAIN + "weights = [1, 2]\n", ["weights: 2 for 1 texts"]),
        (IN_DOMAIN + "weights = [nan]\n", ["calibration.0.weights.0: input should be"]),
        (IN_DOMAIN + "weights = [-1]\n", ["calibration.0.weights.0: input should be greater than 0"]),
        (IN_DOMAIN + "ctxt = 5\n", ["no key 'calibration.0.ctxt'", "did you mean 'ctx'"]),
        (IN_DOMAIN + "random = 1.0\n", ["calibration.0.random", "less than 1"]),
    ],
)
def test_a_wrong_calibration_is_explained(bench: Bench, toml: str, words: list[str]) -> None:
    path = bench.folder / "wrong.toml"
    path.write_text(toml + "[[quantizer]]\n" + _toml(mode="ggml:Q4_0", hessian="in_domain"))
    with pytest.raises(ConfigError) as error:
        read_study(path, models=[bench.model], texts=[bench.text])
    for word in words:
        assert word in str(error.value)


def test_a_calibration_comes_before_a_file_of_its_name(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "study.toml"
    for name in ("in_domain", "in_domain.txt", "elsewhere/x.stats"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    path.write_text(f"{IN_DOMAIN}[[quantizer]]\n" + _toml(mode="q4_0", hessian="in_domain"))
    (quantizer,) = read_study(path, models=[bench.model], texts=[bench.text]).quantizers()
    assert quantizer.information == Reference("in_domain", "hessian")
    # Workers are in another folder, and would not find it.
    monkeypatch.chdir(tmp_path / "elsewhere")
    path.write_text("[[quantizer]]\n" + _toml(mode="q4_0", hessian="x.stats"))
    with pytest.raises(ConfigError, match=r"'x\.stats' is neither a file nor"):
        read_study(path, models=[bench.model], texts=[bench.text])


def test_texts_from_the_command_line(bench: Bench) -> None:
    for name in ("gptq", "compression"):
        given = [("in_domain", bench.text), ("out_of_domain", bench.folder / "in_domain.txt")]
        path = ROOT / "configs" / f"{name}.toml"
        study = read_study(path, models=[bench.model], texts=[bench.text], calibration_texts=given)
        assert [one.texts for one in study.calibration] == [[text] for _, text in given]
        with pytest.raises(
            ConfigError, match=r"none called 'other'; there are: \['in_domain', 'out_of_domain'\]"
        ):
            read_study(path, calibration_texts=[("other", bench.text)])
