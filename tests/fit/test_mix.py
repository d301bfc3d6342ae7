"""Mixtures for a size, on the bundled model: better than stock ones, never worse, and refused in time."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyquant import data
from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.calibration import Calibration
from pyquant.errors import ConfigError, TextError
from pyquant.evaluate.baseline import Baseline
from pyquant.fit.measure_sensitivity import measure_sensitivity
from pyquant.fit.mix import Mixer
from pyquant.fit.mix_model import by_gradients, mix_model
from pyquant.fit.mix_result import Mix
from pyquant.fit.mixtures import FLOOR_BITS, WantedSize, bits_of
from pyquant.fit.type_errors import measure_type_errors
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_name import EMBEDDINGS
from pyquant.models.tensor_type import TensorType as Type
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.command import run

CTX, CHUNKS = 128, 2


@pytest.fixture(scope="module")
def stats(training_text: Path, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("mix") / "stats.gguf"
    calibrate_model(data.model_path(), [training_text], path, n_ctx=256, n_chunks=6, process_output=True)
    return path


@pytest.fixture(scope="module")
def sensitivity(stats: Path, held_out_text: Path):
    return measure_sensitivity(data.model_path(), stats, held_out_text, n_ctx=64, n_chunks=2)


@pytest.fixture(scope="module")
def baseline(held_out_text: Path) -> Iterator[Baseline]:
    with Baseline(ModelFile(data.model_path()), held_out_text, n_ctx=CTX, n_chunks=CHUNKS) as made:
        yield made


def test_statistics_of_too_few_tokens_are_named(
    training_text: Path, held_out_text: Path, tmp_path: Path
) -> None:
    few = tmp_path / "few.gguf"
    calibrate_model(data.model_path(), [training_text], few, n_ctx=64, n_chunks=2, random=0.0)
    with pytest.raises(ConfigError, match=r"to round by: blk.*: 128 tokens are too few for rows of 256"):
        mix_model(data.model_path(), few, held_out_text, WantedSize(target_bpw=5))


@pytest.fixture
def mix(stats: Path, baseline: Baseline, sensitivity, tmp_path_factory) -> Callable[..., Mix]:
    """Return what finds a mixture for a size, by default by measured sensitivities."""

    def find(target: WantedSize, of: Callable[[str], float | None] = sensitivity.of, **options) -> Mix:
        folder = tmp_path_factory.mktemp("tried")
        model = ModelFile(data.model_path())
        return Mixer(model, Calibration.read(stats), target, folder, **options).find(baseline, of)

    return find


@pytest.mark.slow
def test_recipe_and_file_in_one_go(stats: Path, held_out_text: Path, sensitivity, tmp_path: Path) -> None:
    (tmp_path / "sensitivity.toml").write_text(sensitivity.to_toml())
    words = [
        *["mix", data.model_path(), "--hessian", stats, "--text", held_out_text, "--target-bpw", "5.2"],
        *["--sensitivity", "sensitivity.toml", "--ctx", str(CTX), "--chunks", str(CHUNKS)],
        *["--types", "Q4_0,Q8_0", "-o", "recipe.toml"],
    ]
    done = run(*words, "--gguf", "out.gguf", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["gguf"] == "out.gguf"
    by_hand = run(
        *["quantize", data.model_path(), "by-hand.gguf", "--recipe", "recipe.toml", "--hessian", stats],
        cwd=tmp_path,
    )
    assert by_hand.returncode == 0, by_hand.stderr
    assert (tmp_path / "out.gguf").read_bytes() == (tmp_path / "by-hand.gguf").read_bytes()
    assert result["n_bytes"] == (tmp_path / "out.gguf").stat().st_size
    refused = run(*words, "--error-propagation", "6", "--force", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--error-propagation: says how --gguf is made" in refused.stderr


@pytest.mark.slow
def test_types_are_found_for_scaled_channels(stats: Path, held_out_text: Path, sensitivity, tmp_path) -> None:
    model = data.model_path()
    found = mix_model(
        model, stats, held_out_text, WantedSize(like="Q4_K_M"), sensitivity=sensitivity, equalize=True,
        n_ctx=CTX, n_chunks=CHUNKS,
    )  # fmt: skip
    assert found.recipe.model_sha256 == ModelFile(model).sha256()
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(found.recipe.to_toml())
    mode = make_mode({"mode": "recipe", "recipe": recipe, "hessian": stats, "equalize": True})
    made = quantize_model(model, tmp_path / "out.gguf", mode)
    assert made.output_bytes == found.best.n_bytes <= found.wanted_bytes
    with Baseline(model, held_out_text, n_ctx=CTX, n_chunks=CHUNKS) as baseline:
        measured = baseline.kld_of(tmp_path / "out.gguf").kld.mean
    assert measured == pytest.approx(found.best.kld, rel=1e-3)


@pytest.mark.ci
def test_with_gradients_nothing_runs_for_sensitivities(
    sensitivity, training_text: Path, held_out_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, stats = ModelFile(data.model_path()), tmp_path / "stats.gguf"
    options = {"n_ctx": 256, "n_chunks": 6, "output_side": 4}
    calibrate_model(model, [training_text], stats, process_output=True, **options)
    found = by_gradients(model, Calibration.read(stats))
    assert found.keys() == sensitivity.by_tensor.keys()
    monkeypatch.setattr("pyquant.fit.mix_model.measure_sensitivity", None)  # nothing runs for it
    wanted, options = WantedSize(like="Q3_K_M"), {"n_ctx": CTX, "n_chunks": CHUNKS}
    mixed = mix_model(model, stats, held_out_text, wanted, **options)
    assert mixed.stock is not None
    assert mixed.best.kld < 0.8 * mixed.stock.kld
    assert [trial.name for trial in mixed.trials] == ["round 1", mixed.stock.name]
    # Embeddings have no floor where they are rounded by their output-side Hessian.
    without = mix_model(model, stats, held_out_text, wanted, output_side=False, **options)
    (embeddings,) = (tensor for tensor in model.tensors if tensor.name == EMBEDDINGS)
    spared, floored = (bits_of(found.best.types[EMBEDDINGS], embeddings) for found in (mixed, without))
    assert spared < FLOOR_BITS <= floored


def test_without_all_inputs_gradients_are_not_used(training_text: Path, tmp_path: Path) -> None:
    model, stats = ModelFile(data.model_path()), tmp_path / "stats.gguf"
    calibrate_model(model, [training_text], stats, n_ctx=64, n_chunks=2, output_side=1)
    known = Calibration.read(stats)
    assert known.gradients
    assert by_gradients(model, known) == {}  # the output's input is not known


@pytest.mark.slow
def test_a_mixture_is_better_than_the_stock_one_of_its_size(mix, stats, baseline, tmp_path: Path) -> None:
    model = ModelFile(data.model_path())
    found = mix(WantedSize(like="Q4_K_M"))
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(found.recipe.to_toml())
    mode = make_mode({"mode": "recipe", "recipe": recipe, "hessian": stats})
    quantize_model(model, tmp_path / "out.gguf", mode)
    assert (tmp_path / "out.gguf").stat().st_size == found.best.n_bytes == found.recipe.n_bytes
    assert found.best.n_bytes <= found.wanted_bytes
    measured = baseline.kld_of(tmp_path / "out.gguf").kld
    assert measured.mean == pytest.approx(found.best.kld, rel=1e-3)
    assert found.stock is not None
    assert found.stock.n_bytes <= found.wanted_bytes
    assert found.best.kld < 0.8 * found.stock.kld  # measured: .60
    assert not found.fell_back
    assert found.speed is not None
    assert all(0.05 < rates.ratios[0] < 20 for rates in (found.speed.prompt, found.speed.generation))
    shares = [choice.share for choice in found.recipe.tensors.values()]
    assert math.fsum(shares) == pytest.approx(1)
    wanted = {name: [choice.type] for name, choice in found.recipe.tensors.items()}
    errors = measure_type_errors(model, Calibration.read(stats), wanted)
    predicted = math.fsum(
        choice.sensitivity * errors[name].get(choice.type, 0.0)
        for name, choice in found.recipe.tensors.items()
    )
    assert predicted == pytest.approx(found.best.kld, rel=1e-3)
    smaller = mix(WantedSize(target_bpw=5.0))
    assert smaller.best.n_bytes <= 5.0 * model.n_weights / 8
    assert smaller.best.kld > found.best.kld


@pytest.mark.ci
def test_where_sensitivities_mislead_the_stock_mixture_is_taken(mix, sensitivity) -> None:
    """Sensitivities say that what counts most counts least, and kinds alike so that no correction helps."""
    levels = {name: of.sensitivity for name, of in sensitivity.by_tensor.items()}
    found = mix(WantedSize(like="Q5_K_M"), lambda name: levels[name] ** -3)
    assert found.stock is not None
    assert found.best is found.stock
    assert found.fell_back


@pytest.mark.ci
def test_only_allowed_types_are_used(mix) -> None:
    found = mix(WantedSize(target_bpw=5.5), allowed=[Type.Q4_0, Type.Q8_0])
    assert {choice.type for choice in found.recipe.tensors.values()} == {Type.Q4_0, Type.Q8_0}


@pytest.mark.slow
def test_tensors_of_which_nothing_is_known_keep_the_mixtures_types(mix, sensitivity) -> None:
    known = {name: of.sensitivity for name, of in sensitivity.by_tensor.items() if "attn" in name}
    found = mix(WantedSize(like="Q4_K_M"), known.get)
    assert {found.recipe.tensors[f"blk.{i}.ffn_up.weight"].type for i in range(4)} == {Type.Q4_K}


@pytest.mark.slow
def test_sizes_that_are_too_small_and_texts_that_are_too_short_are_refused(
    stats, held_out_text, tmp_path: Path
) -> None:
    model, known = ModelFile(data.model_path()), Calibration.read(stats)
    with pytest.raises(
        ConfigError, match=r"2,000,000 bytes \(3\.05 bits per .* what bounds it: output IQ4_XS"
    ):
        Mixer(model, known, WantedSize(target_size=2_000_000), tmp_path)
    steps: list[str] = []
    with pytest.raises(
        ConfigError, match=r"1\.00 bits per weight\) are wanted, and .* \(3\.49 bits per weight"
    ):
        mix_model(
            data.model_path(), stats, held_out_text, WantedSize(target_bpw=1.0), n_ctx=CTX, n_chunks=1,
            progress=lambda what, done, total: steps.append(what),
        )  # fmt: skip
    assert steps == []  # nothing was measured for it
    with pytest.raises(ConfigError, match=r"1,000,000,000 bytes hold all of .* nothing is to be quantized"):
        Mixer(model, known, WantedSize(target_size=1_000_000_000), tmp_path)
    with pytest.raises(TextError, match=r"too short: \d+ chunks of 512 tokens, .* on 100000; give more"):
        mix_model(data.model_path(), stats, held_out_text, WantedSize(target_bpw=5.0), n_chunks=100_000)
    short = tmp_path / "short.txt"
    short.write_text("word " * 300)
    with pytest.raises(TextError, match=r"short\.txt: too short: 2 chunks of 128 tokens, .* on 3; give more"):
        mix_model(
            data.model_path(),
            stats,
            [held_out_text, short],
            WantedSize(target_bpw=5.0),
            n_ctx=128,
            n_chunks=3,
        )


@pytest.mark.slow
def test_the_command_mixes_by_guesses(stats, held_out_text, training_text, tmp_path: Path) -> None:
    made = run(
        "mix", data.model_path(), "--hessian", stats, "--text", held_out_text, "--text", training_text,
        "--like", "Q4_K_M",
        "--sensitivity", "guess", "--chunks", 2, "--ctx", CTX, "-o", tmp_path / "recipe.toml", "--json",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    result = json.loads(made.stdout)
    assert result["schema"] == "pyquant.mix/1"
    assert result["kld"] <= result["stock"]["kld"]
    quantized = run(
        "quantize", "--recipe", tmp_path / "recipe.toml", "--hessian", stats, data.model_path(),
        tmp_path / "out.gguf",
    )  # fmt: skip
    assert quantized.returncode == 0, quantized.stderr
    assert (tmp_path / "out.gguf").stat().st_size == result["n_bytes"]
    again = run("mix", data.model_path(), "--hessian", stats, "--text", held_out_text, "-o", "x.toml")
    assert again.returncode == 2
    assert "give one of --target-size, --target-bpw and --like" in again.stderr


@pytest.mark.ci
def test_ctrl_c_leaves_nothing(stats, held_out_text, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pyquant", "mix", data.model_path(), "--hessian", stats, "--text"]
    command += [held_out_text, "--like", "Q4_K_M", "-o", tmp_path / "recipe.toml"]
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    process = subprocess.Popen(
        list(map(str, command)), stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": str(scratch)}
    )
    while not list(scratch.glob("*/.lock")):  # its folder is in use
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert not (tmp_path / "recipe.toml").exists()
    assert not list(scratch.iterdir())
