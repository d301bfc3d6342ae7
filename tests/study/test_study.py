"""The study: every run is made once, and its result is the library's."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Type

from pyquant.errors import StudyError
from pyquant.evaluate.perplexity import measure_perplexity
from pyquant.inspect.histogram import count_codes
from pyquant.llama.offload import GPU_LAYERS
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from pyquant.study.config import read_study
from pyquant.study.plan import make_plan
from pyquant.study.report.export import export
from pyquant.study.results.read import read_results
from pyquant.study.run import Status, run_study
from pyquant.study.store import Store
from tests.support.models import Model
from tests.support.studies import EVERYTHING, SAME_EVERYWHERE, Lab, contents, snapshot


@pytest.mark.ci
def test_everything_runs_once(lab: Lab, copied_study: Path) -> None:
    runs = sorted((copied_study / "runs").glob("*.json"))
    # Codes of three quantizers (Q4_K's are not counted); the others of four and the model itself.
    kinds = [path.name.partition("-")[0] for path in runs]
    assert {kind: kinds.count(kind) for kind in EVERYTHING} == {
        "codes": 3,
        "size": 5,
        "quality": 5,
        "speed": 5,
    }
    assert not list((copied_study / "models").iterdir())
    before = snapshot(copied_study)
    assert lab.run(copied_study).made == 0
    assert snapshot(copied_study) == before


@pytest.mark.slow
def test_a_new_model_and_a_new_text_run_alone(lab: Lab, copied_study: Path) -> None:
    before = snapshot(copied_study / "runs")
    steps: list[Status] = []
    done = lab.run(copied_study, n_models=2, watch=steps.append)
    assert (done.made, done.kept) == (18, 18)
    assert all(lab.models[1].name in step.finished[0] for step in steps if step.finished)
    assert before.items() <= snapshot(copied_study / "runs").items()
    assert steps[-1].share == pytest.approx(1)
    assert steps[-1].done == steps[-1].total == 10  # 3 of codes, 5 of sizes, quality, speed


@pytest.mark.slow
def test_a_missing_result_is_made_again(lab: Lab, copied_study: Path) -> None:
    base = json.loads((copied_study / "study.json").read_text())["models"][0]["rows"][0]["quality"][0]
    before = contents(copied_study)
    (copied_study / "runs" / f"{base}.json").unlink()
    assert lab.run(copied_study).made == 1
    assert contents(copied_study) == before


@pytest.mark.ci
def test_together_does_not_matter(lab: Lab, tmp_path: Path, undisturbed_study: dict[str, dict]) -> None:
    config = lab.write("together.toml", SAME_EVERYWHERE, "together = 3\n")
    lab.run(tmp_path / "results", config)
    assert contents(tmp_path / "results").items() <= undisturbed_study.items()


@pytest.mark.ci
def test_no_more_models_are_there_than_are_compared_and_made_next(
    lab: Lab, tmp_path: Path, undisturbed_study: dict[str, dict]
) -> None:
    config = lab.write("bounded.toml", SAME_EVERYWHERE, "together = 1\n")
    folder, seen = tmp_path / "results", []
    lab.run(folder, config, watch=lambda _: seen.append(len(list((folder / "models").glob("*.gguf")))))
    assert 0 < max(seen) <= 2
    assert contents(folder).items() <= undisturbed_study.items()


@pytest.mark.ci
def test_a_model_that_is_not_made_costs_the_others_nothing(lab: Lab, tmp_path: Path) -> None:
    config = lab.write("failing.toml", ["size", "quality"])
    config.write_text(config.read_text() + '\n[[quantizer]]\nmode = "q8_table"\ntable = "nowhere"\n')
    with pytest.raises(
        StudyError, match=r"^1 of \d+ tasks failed; .*\n  model-1.gguf q8_table nowhere: "
    ) as failure:
        lab.run(tmp_path / "results", config)
    assert str(failure.value).count("\n") == 1
    (model,) = read_results(Store(tmp_path / "results")).models
    assert [row.label for row in model.rows if not row.result("quality")] == ["q8_table nowhere"]


@pytest.mark.ci
def test_a_calibration_that_fails_costs_only_its_own_quantizers(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("the")
    config = tmp_path / "calibrated.toml"
    config.write_text(
        """ctx = 32\nchunks = 3\nmeasure = ["size", "quality"]\n
        [[calibration]]\nname = "short"\ntexts = ["short.txt"]\n
        [[quantizer]]\nmode = ["q4_0", "q8_0"]\n[[quantizer]]\nmode = "ggml:Q4_0"\nhessian = "short"\n"""
    )
    with pytest.raises(StudyError, match=r"^2 of 6 tasks failed"):
        lab.run(tmp_path / "results", config)
    (model,) = read_results(Store(tmp_path / "results")).models
    known = [row.label for row in model.rows if row.result("quality")]
    assert known == ["unquantized", "q4_0", "q8_0"]


@pytest.mark.ci
def test_a_model_that_is_as_the_base_is_reported(lab: Lab, tmp_path: Path) -> None:
    config = lab.write("exact.toml", ["size", "quality"])
    config.write_text(config.read_text() + '[[quantizer]]\nmode = "ggml:F32"\ntensors = "token_embd"\n')
    half = Model(n_layer=1, type=Type.F16).write(tmp_path / "half.gguf")
    run_study(read_study(config, models=[half], texts=[lab.text]), tmp_path / "results", workers=1)
    (model,) = read_results(Store(tmp_path / "results")).models
    assert model.rows[-1].result("quality")["kld"]["mean"] == 0
    assert "ggml:F32" in (tmp_path / "results" / "report.html").read_text()


@pytest.mark.ci
def test_shards_that_are_links_are_those_they_link_to(lab: Lab, tmp_path: Path) -> None:
    first = Model(n_layer=1).write(tmp_path / "model.gguf", tensors_per_shard=9)
    model = tmp_path / "links" / first.name
    model.parent.mkdir()
    for file in tmp_path.glob("*-of-*.gguf"):
        (model.parent / file.name).symlink_to(file.rename(file.with_suffix(".blob")))
    study = read_study(lab.write("size.toml", ["size"]), models=[model])
    run_study(study, tmp_path / "results", workers=1)
    assert read_results(Store(tmp_path / "results")).models[0].name == model.name


@pytest.mark.ci
def test_models_of_the_same_name(lab: Lab, tmp_path: Path) -> None:
    models = [tmp_path / folder / "model.gguf" for folder in ("a", "b")]
    for source, path in zip(lab.models, models):
        path.parent.mkdir()
        shutil.copy(source, path)
    study = read_study(lab.write("size.toml", ["size"]), models=models)
    assert run_study(study, tmp_path / "results", workers=1).made == 10
    assert [model.name for model in read_results(Store(tmp_path / "results")).models] == [
        "a/model.gguf",
        "b/model.gguf",
    ]


@pytest.mark.ci
def test_a_command_and_a_model_that_are_not_utf8(lab: Lab, tmp_path: Path) -> None:
    model = Path(shutil.copy(lab.models[0], tmp_path / os.fsdecode(b"\xff.gguf")))
    study = read_study(lab.write("size.toml", ["size"]), models=[model])
    run_study(study, tmp_path / "results", workers=1, command=f"--model {model.name}")
    store = Store(tmp_path / "results")
    assert store.study()["command"] == f"--model {model.name}"
    assert [store.problem(key) for key in store.finished()] == [None] * 5
    export(store.folder, tmp_path / "out.csv")
    assert b"\\udcff.gguf," in (tmp_path / "out.csv").read_bytes()


@pytest.mark.ci
def test_quantized_models_may_be_kept(lab: Lab, tmp_path: Path) -> None:
    lab.run(tmp_path / "results", lab.write("size.toml", ["size"]), keep=True)
    assert len(list((tmp_path / "results" / "models").glob("*.gguf"))) == 4


@pytest.mark.ci
def test_models_of_another_study_stay_and_are_said(
    lab: Lab, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    others = tmp_path / "results" / "models" / "of-others.gguf"
    others.parent.mkdir(parents=True)
    others.touch()
    lab.run(tmp_path / "results", lab.write("size.toml", ["size"]))
    assert list(others.parent.iterdir()) == [others]
    assert f"{others.parent}: models that this study does not name stay: 1" in caplog.text


def test_results_are_the_librarys(lab: Lab, finished_study: Path, tmp_path: Path) -> None:
    (model,) = read_results(Store(finished_study)).models
    row = model.row("q4_0_multizero 2")
    mode = make_mode({"mode": "q4_0_multizero", "radius": 2})
    report = quantize_model(lab.models[0], tmp_path / "q.gguf", mode).to_json()
    assert row.result("size")["bytes"] == report["output_bytes"] == (tmp_path / "q.gguf").stat().st_size
    assert row.result("size")["snr_db"] == report["snr_db"]
    assert row.result("size")["bits"] == report["bits_per_weight"]
    alone = measure_perplexity(tmp_path / "q.gguf", lab.text, n_ctx=32, n_chunks=3)
    assert row.result("quality")["perplexity"] == pytest.approx(alone.ppl, rel=1e-6)
    assert row.result("codes")["totals"] == count_codes(lab.models[0], mode).to_json()["totals"]


def test_provenance(lab: Lab, finished_study: Path) -> None:
    for path in (finished_study / "runs").glob("*.json"):
        record = json.loads(path.read_text())
        assert record["schema"] == "pyquant.run/2"
        assert record["inputs"]["model"] == hashlib.sha256(lab.models[0].read_bytes()).hexdigest()
        about = record["provenance"]
        assert about["names"]["model"] == "model-1.gguf"
        assert about["command"] == "made by a test"
        assert about["environment"]["built_for_llama_cpp_python"] == record["inputs"]["llama_cpp_python"]
        assert about["cpu"]
        assert about["seconds"] > 0


def test_keys_say_what_results_depend_on(lab: Lab, tmp_path: Path) -> None:
    def keys(text: Path = lab.text, model: Path = lab.models[0], **settings: object) -> list[str]:
        study = read_study(lab.config, models=[model], texts=[text], **settings)
        with Store(tmp_path / "results") as store:
            return [run.key for run in make_plan(study, store).runs()]

    other_name = Path(shutil.copy(lab.models[0], tmp_path / "other name.gguf"))
    other_text = tmp_path / "other.txt"
    other_text.write_text("other " * 200)
    assert keys() == keys(model=other_name)
    assert not set(keys()) & set(keys(model=lab.models[1]))
    for change in ({"text": other_text}, {"ctx": 64}, {"chunks": 2}):
        same = set(keys()) & set(keys(**change))
        assert {key.partition("-")[0] for key in same} == {"codes", "size", "speed"}
    tables = tmp_path / "table.toml"
    different = []
    for high in (126, 127):
        tables.write_text(f"values = {[*range(-8, 7), high]}")
        different.append(keys(quantizer=[{"mode": "q8_table", "table": str(tables)}]))
    assert different[0][:3] == different[1][:3]  # of the model itself
    assert not set(different[0][3:]) & set(different[1][3:])


@pytest.mark.parametrize("changed", ["threads", "offload"])
def test_only_speed_depends_on_threads_and_gpus(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    study = read_study(lab.config, models=lab.models[:1], texts=[lab.text])
    monkeypatch.delenv(GPU_LAYERS, raising=False)
    with Store(tmp_path / "results") as store:
        usual = {run.key for run in make_plan(study, store).runs()}
        if changed == "offload":
            monkeypatch.setenv(GPU_LAYERS, "all")
        threads = 1 if changed == "threads" else None
        runs = {run.key: run for run in make_plan(study, store, threads=threads).runs()}
    other = [run for key, run in runs.items() if key not in usual]
    assert [run.metric for run in other] == ["speed"] * 5
    assert all(changed in run.inputs for run in other)


@pytest.mark.ci
def test_files_are_beside_the_study_wherever_it_is_run(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "table.toml").write_text(f"values = {list(range(-128, 128, 16))}")
    quantizer = '[[quantizer]]\nmode = "table"\ntable = "table.toml"\n'
    (tmp_path / "study.toml").write_text(f'measure = ["size"]\n{quantizer}')
    monkeypatch.chdir(tmp_path)
    done = run_study(read_study(Path("study.toml"), models=[small_model]), Path("results"), workers=1)
    assert done.made == 2  # the unquantized model and the row
