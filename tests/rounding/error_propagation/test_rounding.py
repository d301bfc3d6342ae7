"""Rounding in the model's order: what is corrected, and what comes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.calibration import Calibration
from pyquant.data import model_path
from pyquant.evaluate.compare import compare_models
from pyquant.models.model_file import ModelFile
from pyquant.models.pqz.unpack import unpack_model
from pyquant.models.tensor import Tensor
from pyquant.models.unpack_q4_t import unpack_q4_t
from pyquant.rounding.quantize_model import quantize_model
from pyquant.rounding.to_pqz import quantize_to_pqz
from pyquant.schemes.settings import make_mode
from tests.support.command import run
from tests.support.error_propagation import error_propagation
from tests.support.models import EXPERTS, F32, ODD_ROWS


def stored(path: Path) -> dict[str, np.ndarray]:
    return {tensor.name: np.array(tensor.data) for tensor in GGUFReader(path).tensors}


@pytest.mark.parametrize("model", [F32, EXPERTS, ODD_ROWS])
def test_what_is_not_rounded_is_not_corrected(generated, stats_of, model: str) -> None:
    def keep(tensor: Tensor, weights: np.ndarray | None) -> np.ndarray:
        own = tensor.weights()
        if weights is None:
            assert "exps" in tensor.name  # tokens that are routed
        else:
            np.testing.assert_array_equal(weights, own)
        return own

    met = error_propagation(generated(model), stats_of(model), keep)
    assert sorted(met) == sorted(n for n in Calibration.read(stats_of(model)).matrices if "blk" in n)
    assert [name.split(".")[1] for name in met] == sorted(name.split(".")[1] for name in met)  # by layer
    first = [name.split(".")[2] for name in met if name.startswith("blk.0.")]
    assert set(first[:3]) == {"attn_q", "attn_k", "attn_v"}
    assert first[3] == "attn_output"


def test_rows_are_corrected_portion_by_portion(generated, stats_of, monkeypatch) -> None:
    def corrected() -> dict[str, np.ndarray]:
        found = {}

        def scale(tensor: Tensor, weights: np.ndarray) -> np.ndarray:
            found[tensor.name] = weights
            return 0.9 * tensor.weights()

        error_propagation(generated(F32), stats_of(F32), scale)
        return found

    whole = corrected()
    monkeypatch.setattr("pyquant.rounding.error_propagation.portions", lambda n: [slice(0, 5), slice(5, n)])
    for name, weights in corrected().items():
        np.testing.assert_allclose(weights, whole[name], rtol=1e-5, atol=1e-6)


def test_what_comes_after_makes_up_for_what_was_changed(generated, stats_of, monkeypatch) -> None:
    """The inputs of output projections are doubled: they want half of their weights."""
    monkeypatch.setattr("pyquant.rounding.error_propagation.STREAM", 0.01)
    found = {}

    def scale(tensor: Tensor, weights: np.ndarray) -> np.ndarray:
        found[tensor.name] = weights, tensor.weights()
        if "attn_output" in tensor.name:
            return weights  # else what it has done to the stream would be made up for by ffn_down
        # The up projection and V go into what follows as they are: twice as much of them is twice that.
        return tensor.weights() * (2 if "ffn_up" in tensor.name or "attn_v" in tensor.name else 1)

    error_propagation(generated(F32), stats_of(F32), scale, "blk.0.")
    for name in ("attn_output", "ffn_down"):
        corrected, own = found[f"blk.0.{name}.weight"]
        # Dampening leaves directions alone in which little enters, so not all of it is corrected.
        share = np.linalg.norm(corrected - own / 2) / np.linalg.norm(own / 2)
        assert share < 0.2
        assert np.linalg.norm(corrected) < 0.8 * np.linalg.norm(own)


def test_the_first_inputs_are_as_they_were(made) -> None:
    error_propagation, alone = stored(made(F32)), stored(made(F32, error_propagation=None, dampening=0.3))
    for name in ("attn_q", "attn_k", "attn_v"):
        np.testing.assert_array_equal(
            error_propagation[f"blk.0.{name}.weight"], alone[f"blk.0.{name}.weight"]
        )
    assert (error_propagation["blk.0.ffn_down.weight"] != alone["blk.0.ffn_down.weight"]).any()
    assert (error_propagation["blk.1.attn_q.weight"] != alone["blk.1.attn_q.weight"]).any()
    for name in ("token_embd.weight", "output.weight"):
        np.testing.assert_array_equal(error_propagation[name], alone[name])


def test_experts_that_few_tokens_are_sent_to_are_not_corrected(made) -> None:
    error_propagation, alone = (
        stored(made(EXPERTS)),
        stored(made(EXPERTS, error_propagation=None, dampening=0.3)),
    )
    experts = [name for name in error_propagation if "exps" in name]
    assert experts
    for name in experts:
        np.testing.assert_array_equal(error_propagation[name], alone[name])
    assert (error_propagation["blk.0.attn_output.weight"] != alone["blk.0.attn_output.weight"]).any()


def test_few_logits_leave_the_last_layer_alone(generated, stats_of, monkeypatch: pytest.MonkeyPatch) -> None:
    # Tokens without logits do not come to the last layer's feed-forward part.
    monkeypatch.setattr("pyquant.rounding.staged_context.LOGITS_BYTES", 1 << 16)
    without = []

    def write(tensor: Tensor, weights: np.ndarray | None) -> np.ndarray:
        without.extend([tensor.name] if weights is None else [])
        return tensor.weights()

    met = error_propagation(generated(F32), stats_of(F32), write)
    last = max(int(name.split(".")[1]) for name in met)
    assert without
    assert all(name.startswith(f"blk.{last}.ffn") for name in without)


def test_the_same_file_again(made, generated, stats_of, tmp_path: Path) -> None:
    mode = {"mode": "ggml:IQ4_NL", "hessian": stats_of(F32), "error_propagation": 32}
    quantize_model(generated(F32), tmp_path / "again.gguf", make_mode(mode))
    assert (tmp_path / "again.gguf").read_bytes() == made(F32).read_bytes()
    assert ModelFile(made(F32)).get("pyquant.error_propagation") == 32
    assert ModelFile(made(F32, error_propagation=None)).get("pyquant.error_propagation") is None


def test_matrices_of_every_kind_of_output(made, generated, stats_of, tmp_path: Path) -> None:
    """Types that GGML rounds, tables in stock blocks and packed, uniform steps in a packed file."""
    alone = stored(made(F32, mode="ggml:Q6_K", error_propagation=None))
    assert any((alone[name] != data).any() for name, data in stored(made(F32, mode="ggml:Q6_K")).items())

    packed, table = made(F32, mode="q4_0", store="q4_t"), made(F32, mode="q4_0")
    unpack_q4_t(packed, tmp_path / "unpacked.gguf")
    assert (tmp_path / "unpacked.gguf").read_bytes() == table.read_bytes()

    ecsq = made(F32, mode="ecsq", step=0.01)
    mode = make_mode({"mode": "ecsq", "step": 0.01, "hessian": stats_of(F32), "error_propagation": 32})
    quantize_to_pqz(generated(F32), tmp_path / "out.pqz", mode)
    unpack_model(tmp_path / "out.pqz", tmp_path / "out.gguf")
    assert (tmp_path / "out.gguf").read_bytes() == ecsq.read_bytes()


@pytest.mark.ci
def test_the_command(generated, stats_of, made, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    arguments = ["quantize", generated(F32), out, "--mode", "ggml:IQ4_NL", "--hessian", stats_of(F32)]
    told = run(*arguments, "--error-propagation", 32)
    assert told.returncode == 0, told.stderr
    assert out.read_bytes() == made(F32).read_bytes()


@pytest.mark.slow
def test_it_is_nearer_to_the_model(training_text: Path, held_out_text: Path, tmp_path: Path) -> None:
    source, text = model_path(), held_out_text
    stats, files = tmp_path / "stats", [tmp_path / "alone.gguf", tmp_path / "in-order.gguf"]
    calibrate_model(source, [training_text], stats, n_ctx=256, n_chunks=96, threads=1)
    common = {"mode": "ggml:IQ4_NL", "hessian": stats, "pure": True, "tensors": "blk"}
    for path, chunks in zip(files, (None, 96)):
        quantize_model(source, path, make_mode({**common, "error_propagation": chunks}))
    found = compare_models(source, files, text, n_ctx=256, n_chunks=24, threads=1).to_json()
    alone, error_propagation = (one["kld"]["mean"] for one in found["candidates"])
    assert error_propagation < 0.85 * alone


def test_more_dampening_in_order_unless_asked_otherwise() -> None:
    alone, error_propagation, asked = (
        make_mode({"mode": "q4_0", "hessian": "stats", **more}).dampening
        for more in ({}, {"error_propagation": 4}, {"error_propagation": 4, "dampening": 0.05})
    )
    assert (alone, error_propagation, asked) == (0.03, 0.3, 0.05)
