"""Equalizing: which scales, what it is worth, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from pyquant.calibration.calibrate import calibrate_model
from pyquant.errors import ConfigError, ModelFileError, OutputError
from pyquant.evaluate.compare import compare_models
from pyquant.fit.step_search import StepSearch
from pyquant.fit.target import Target
from pyquant.inspect.histogram import count_codes
from pyquant.models.model_file import ModelFile
from pyquant.rounding.equalize import equalize_model as module
from pyquant.rounding.equalize.equalize_model import equalize_model
from pyquant.rounding.equalize.exponents import balance
from pyquant.rounding.equalize.links import Giver, Link, links_of
from pyquant.rounding.quantize_model import quantize_model
from pyquant.rounding.to_pqz import quantize_to_pqz
from pyquant.schemes.settings import make_mode
from tests.support.command import run
from tests.support.models import Model

NAME = "f32, rows of 64 and 96"


def test_a_channel_is_scaled_by_the_eighth_root_of_its_powers() -> None:
    power = np.array([[1.0, 1, 1, 2.0**8, 2.0**24, 2.0**-16, 0, 2.0**400]])
    weights = np.array([[1.0, 1, 1, 1, 1, 1, 1, 1]])
    assert balance(power, weights).tolist() == [[0, 0, 0, 1, 3, -2, 0, 8]]
    assert balance(weights, power).tolist() == [[0, 0, 0, -1, -3, 2, 0, -8]]


def test_nothing_known_is_nothing_scaled() -> None:
    assert not balance(np.zeros((2, 4)), np.ones((2, 4))).any()


@pytest.fixture(scope="module")
def outlying(tmp_path_factory: pytest.TempPathFactory, text: Path) -> tuple[Path, Path]:
    """A model some of whose channels are far larger than others, and its Hessian statistics."""
    model = OutlyingModel(n_embd=64, n_ff=96, n_layer=2, n_head=4, n_head_kv=2, n_vocab=300)
    folder = tmp_path_factory.mktemp("outlying")
    path = model.write(folder / "model.gguf")
    calibrate_model(path, [text], folder / "stats", n_ctx=64, n_chunks=16, threads=1)
    return path, folder / "stats"


class OutlyingModel(Model):
    """Norms give two channels 64 times as large, which their matrices undo."""

    def tensors(self) -> dict[str, np.ndarray]:
        tensors = super().tensors()
        for name, x in tensors.items():
            if name.startswith("blk.") and "norm" in name:
                x[[5, 40]] *= 64
            elif any(kind in name for kind in ("attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up")):
                x[:, [5, 40]] /= 64
        return tensors


def test_outliers_cost_less(outlying: tuple[Path, Path], text: Path, tmp_path: Path) -> None:
    model, stats = outlying
    equalized = tmp_path / "equalized.gguf"
    equalize_model(model, stats, equalized, threads=1)
    files = [tmp_path / "before.gguf", tmp_path / "after.gguf"]
    for source, file in zip((model, equalized), files):
        quantize_model(source, file, make_mode({"mode": "ggml:Q8_0", "pure": True}), threads=1)
    compared = compare_models(model, files, text, n_ctx=64, n_chunks=8, threads=1).to_json()
    before, after = (candidate["kld"]["mean"] for candidate in compared["candidates"])
    assert after < 0.3 * before


@pytest.mark.parametrize("error_propagation", [None, 16])
def test_the_option_is_both_commands(
    outlying: tuple[Path, Path], error_propagation: int | None, tmp_path: Path
) -> None:
    model, stats = outlying
    equalized, its_stats = tmp_path / "equalized.gguf", tmp_path / "stats"
    equalize_model(model, stats, equalized, hessian_out=its_stats, threads=1)
    settings = {"mode": "ggml:IQ4_NL", "error_propagation": error_propagation}
    after = quantize_model(
        equalized, tmp_path / "after.gguf", make_mode({**settings, "hessian": its_stats}), threads=1
    )
    at_once = quantize_model(
        model, tmp_path / "at-once.gguf", make_mode({**settings, "hessian": stats, "equalize": True}),
        threads=1,
    )  # fmt: skip
    name = "quantize.imatrix.file"  # the files differ in what they call the statistics
    files = [ModelFile(tmp_path / file) for file in ("after.gguf", "at-once.gguf")]
    assert [file.get(name) for file in files] == [str(its_stats), str(stats)]
    for file in files:
        file.header.remove(name)
    assert files[0].header.header() == files[1].header.header()
    assert [t.data() for t in files[0].tensors] == [t.data() for t in files[1].tensors]
    assert at_once.source == str(model)
    assert at_once.to_json()["tensors"] == after.to_json()["tensors"]
    keys = ModelFile(tmp_path / "at-once.gguf")
    assert keys.get("pyquant.equalized_from") == ModelFile(model).sha256()


@pytest.mark.parametrize("more", [{"equalize": True}, {"error_propagation": 16}], ids=" ".join)
def test_codes_are_counted_of_what_is_written(
    outlying: tuple[Path, Path], tmp_path: Path, more: dict[str, object]
) -> None:
    model, stats = outlying
    mode = make_mode({"mode": "q4_0", "hessian": stats, **more})
    quantize_model(model, tmp_path / "out.gguf", mode, threads=1)
    through, written = count_codes(model, mode, threads=1), count_codes(tmp_path / "out.gguf", threads=1)
    assert through.to_json()["totals"][0]["codes"] == written.to_json()["totals"][0]["codes"]
    assert through.model == str(model)


def test_a_recipe_of_the_model_fits(outlying: tuple[Path, Path], tmp_path: Path) -> None:
    model, stats = outlying
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f'version = 1\nbase = "Q4_0"\nmodel_sha256 = "{ModelFile(model).sha256()}"\n'
        f'[tensors]\n"blk.0.attn_v.weight" = "Q8_0"\n'
    )
    settings = {"mode": "recipe", "recipe": recipe, "hessian": stats, "equalize": True}
    quantize_model(model, tmp_path / "out.gguf", make_mode(settings), threads=1)
    types = {tensor.name: tensor.type.name for tensor in ModelFile(tmp_path / "out.gguf").tensors}
    assert types["blk.0.attn_v.weight"] == "Q8_0"


def test_an_importance_matrix_says_enough(outlying: tuple[Path, Path], text: Path, tmp_path: Path) -> None:
    model, _ = outlying
    imatrix = tmp_path / "imatrix.gguf"
    options = {"n_ctx": 64, "n_chunks": 16, "threads": 1, "random": 0.0}
    calibrate_model(model, [text], tmp_path / "stats", imatrix=imatrix, **options)
    for source, file in ((tmp_path / "stats", "a.gguf"), (imatrix, "b.gguf")):
        equalize_model(model, source, tmp_path / file, threads=1)
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
    with pytest.raises(ConfigError, match=r"imatrix\.gguf: expected what `pyquant calibrate` writes"):
        equalize_model(model, imatrix, tmp_path / "c.gguf", hessian_out=tmp_path / "d", threads=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.gguf", "b.gguf", "imatrix.gguf", "stats"]


def link_that_is_none(file: ModelFile) -> Link:
    """Takes gate for what gives ffn_down its channels, though an activation follows it."""
    tensors = {tensor.name: tensor for tensor in file.tensors}
    return Link((Giver(tensors["blk.0.ffn_gate.weight"]),), (tensors["blk.0.ffn_down.weight"],), 96)


def test_a_model_that_computes_otherwise_is_refused(
    outlying: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, stats = outlying

    monkeypatch.setattr(module, "links_of", lambda file: [link_that_is_none(file)])
    monkeypatch.setattr(module, "exponents_of", lambda link, _: np.full((1, 96), 2, np.int8))
    with pytest.raises(ModelFileError, match=r"of architecture llama computes something else"):
        equalize_model(model, stats, tmp_path / "out.gguf", threads=1)
    assert not list(tmp_path.iterdir())


def test_links_that_a_model_computes_otherwise_are_left_out(
    outlying: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, stats = outlying

    def with_a_wrong_one(file: ModelFile) -> list[Link]:
        return [*(link for link in links_of(file) if link.kind != "ffn_down"), link_that_is_none(file)]

    def exponents(link: Link, _: object) -> np.ndarray:
        return np.full((1, link.n_channels), 2, np.int8)

    monkeypatch.setattr(module, "links_of", with_a_wrong_one)
    monkeypatch.setattr(module, "exponents_of", exponents)
    done = equalize_model(model, stats, tmp_path / "out.gguf", threads=1)
    assert done.left_out == ["ffn_down"]
    assert done.n_links == 2 * 3 + 1
    assert done.kld < module.SAME
    before, after = ({t.name: t.data() for t in ModelFile(path).tensors} for path in (model, done.output))
    assert before["blk.0.ffn_down.weight"] == after["blk.0.ffn_down.weight"]
    assert before["blk.0.ffn_up.weight"] != after["blk.0.ffn_up.weight"]
    told: list[str] = []
    mode = make_mode({"mode": "ggml:Q4_0", "hessian": stats, "equalize": True})
    quantize_model(model, tmp_path / "q4_0.gguf", mode, threads=1, tell=told.append)
    assert told == ["not equalized: channels that enter ffn_down, as other scales of them change the model"]


def test_what_is_refused(
    outlying: tuple[Path, Path],
    generated: Callable[[str], Path],
    stats_of: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    model, stats = outlying
    with pytest.raises(ModelFileError, match="made from another model"):
        equalize_model(model, stats_of(NAME), tmp_path / "out.gguf")
    with pytest.raises(OutputError, match="is the input"):
        equalize_model(model, stats, stats, force=True)
    quantize_model(model, tmp_path / "q8_0.gguf", make_mode({"mode": "ggml:Q8_0"}), threads=1)
    refused = run("equalize", tmp_path / "q8_0.gguf", tmp_path / "out.gguf", "--hessian", stats)
    assert refused.returncode == 1
    assert "made from another model" in refused.stderr
    with pytest.raises(ConfigError, match="equalize: is of Hessian statistics, and none are given"):
        make_mode({"mode": "ggml:Q4_0", "equalize": True})


def test_a_quantized_model_is_refused(outlying: tuple[Path, Path], text: Path, tmp_path: Path) -> None:
    model, _ = outlying
    quantized, stats = tmp_path / "q8_0.gguf", tmp_path / "stats"
    quantize_model(model, quantized, make_mode({"mode": "ggml:Q8_0", "pure": True}), threads=1)
    calibrate_model(quantized, [text], stats, n_ctx=64, n_chunks=16, threads=1)
    with pytest.raises(ModelFileError, match="is Q8_0, and only floats can be scaled"):
        equalize_model(quantized, stats, tmp_path / "out.gguf", threads=1)


def test_the_command_says_what_it_did(outlying: tuple[Path, Path], tmp_path: Path) -> None:
    model, stats = outlying
    words = ["equalize", model, tmp_path / "out.gguf", "--hessian", stats, "--hessian-out", tmp_path / "new"]
    done = run(*words, "--json", "--threads", "1")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["n_links"] == 2 * 4
    assert 0 < result["n_scaled"] < result["n_channels"] == 2 * (64 + 32 + 64 + 96)
    assert result["rounded"] == 0
    assert len(GGUFReader(tmp_path / "out.gguf").tensors) == len(GGUFReader(model).tensors)
    again = run(*words)
    assert again.returncode == 1
    assert "out.gguf: exists; --force replaces it" in again.stderr


def test_a_step_is_searched_on_the_scaled_model(outlying: tuple[Path, Path], tmp_path: Path) -> None:
    model, stats = outlying
    settings = {"mode": "ecsq", "hessian": stats, "step": 0.05, "equalize": True}
    search = StepSearch(model, make_mode(settings), threads=1)
    mode = search.find(Target("target_bpw", 6.0))
    assert mode.equalize
    assert mode.hessian == stats
    done = quantize_to_pqz(model, tmp_path / "out.pqz", mode, threads=1)
    assert done.pqz.output_bytes in {attempt.measured for attempt in search.tries}
