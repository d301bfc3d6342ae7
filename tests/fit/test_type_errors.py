"""Errors of types: those of the file that quantizing makes."""

from __future__ import annotations

import numpy as np
import pytest

from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.calibration import Calibration
from pyquant.errors import ModelFileError
from pyquant.fit.type_errors import _spread, measure_type_errors
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_name import EMBEDDINGS
from pyquant.models.tensor_type import TensorType as Type
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.models import EXPERTS, F32, Model

NAMES = ["blk.0.attn_q.weight", "blk.0.ffn_down.weight", "token_embd.weight"]


@pytest.mark.parametrize("type_", [Type.Q4_0, Type.IQ4_NL, Type.Q8_0])
def test_of_few_rows_they_are_those_of_the_file(generated, stats_of, tmp_path, type_: Type) -> None:
    """Matrices of at most 128 rows are measured whole."""
    model, calibration = ModelFile(generated(F32)), Calibration.read(stats_of(F32))
    names = [name for name in NAMES if name != "token_embd.weight"]
    found = measure_type_errors(model, calibration, {name: [type_] for name in names}, threads=2)
    mode = {"mode": f"ggml:{type_.name}", "pure": True, "hessian": stats_of(F32)}
    quantize_model(model, tmp_path / "out.gguf", make_mode(mode))
    made = {tensor.name: tensor.weights() for tensor in ModelFile(tmp_path / "out.gguf").tensors}
    for tensor in model.tensors:
        if tensor.name in names:
            assert tensor.n_rows <= 128
            errors = tensor.weights() - made[tensor.name]
            hessian = calibration.hessian(tensor.name)
            assert found[tensor.name][type_] == pytest.approx(np.vdot(errors @ hessian, errors), rel=1e-4)


def test_some_rows_and_experts_stand_for_all(generated, stats_of, monkeypatch) -> None:
    def errors() -> list[float]:
        found = []
        for name in ("blk.0.attn_q.weight", "blk.0.ffn_up_exps.weight"):
            found += measure_type_errors(model, calibration, {name: [Type.Q4_0]})[name].values()
        return found

    model, calibration = ModelFile(generated(EXPERTS)), Calibration.read(stats_of(EXPERTS))
    monkeypatch.setattr("pyquant.fit.type_errors.ROWS", 10_000)
    of_all = errors()
    monkeypatch.setattr("pyquant.fit.type_errors.ROWS", 96)
    assert errors() == pytest.approx(of_all, rel=0.15)
    monkeypatch.setattr("pyquant.fit.type_errors.EXPERTS", 2)  # of three
    assert errors() == pytest.approx(of_all, rel=0.25)


def test_samples_are_spread_evenly() -> None:
    assert _spread(10, 4).tolist() == [1, 3, 6, 8]
    assert _spread(3, 8).tolist() == [0, 1, 2]
    assert _spread(300, 1).tolist() == [150]


@pytest.mark.parametrize("output_side", [True, False])
def test_embeddings_err_by_what_follows_of_them(text, tmp_path, monkeypatch, output_side: bool) -> None:
    path, stats = Model(n_layer=1).write(tmp_path / "model.gguf"), tmp_path / "stats"
    calibrate_model(path, [text], stats, n_ctx=64, n_chunks=8, output_side=4)
    model, calibration = ModelFile(path), Calibration.read(stats)
    (embeddings,) = (tensor for tensor in model.tensors if tensor.name == EMBEDDINGS)
    monkeypatch.setattr("pyquant.fit.type_errors.ROWS", embeddings.n_rows)
    options = {"output_side": output_side}
    found = measure_type_errors(model, calibration, {EMBEDDINGS: [Type.Q4_0]}, **options)
    mode = make_mode({"mode": "ggml:Q4_0", "pure": True, "hessian": stats, **options})
    quantize_model(model, tmp_path / "out.gguf", mode)
    (made,) = (tensor for tensor in ModelFile(tmp_path / "out.gguf").tensors if tensor.name == EMBEDDINGS)
    errors = embeddings.weights() - made.weights()
    gradients = calibration.output_hessian(EMBEDDINGS)
    weighed = errors @ (gradients / np.mean(np.diagonal(gradients))) if output_side else errors
    assert found[EMBEDDINGS][Type.Q4_0] == pytest.approx(np.vdot(weighed, errors), rel=1e-4)


@pytest.mark.ci
def test_more_bits_err_less_whatever_the_threads(generated, stats_of) -> None:
    model, calibration = ModelFile(generated(EXPERTS)), Calibration.read(stats_of(EXPERTS))
    types = [Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K, Type.Q8_0, Type.F16]
    names = [tensor.name for tensor in model.tensors if len(tensor.shape) == 3] + NAMES[::2]
    wanted = dict.fromkeys(names, types)
    found = measure_type_errors(model, calibration, wanted, threads=1)
    assert measure_type_errors(model, calibration, wanted, threads=3) == found
    for of_types in found.values():
        errors = [of_types[type_] for type_ in types]
        assert errors == sorted(errors, reverse=True)
        assert errors[-1] == 0  # its own type


def test_a_weight_that_is_not_finite_is_named(stats_of, tmp_path) -> None:
    def broken(name: str, x: np.ndarray) -> np.ndarray:
        return np.where(np.arange(x.size).reshape(x.shape) == 70, np.inf, x) if "attn_q" in name else x

    path = Model(change=broken).write(tmp_path / "model.gguf")
    calibration = Calibration.read(stats_of(F32))
    with pytest.raises(ModelFileError, match=r"model.gguf: tensor 'blk.0.attn_q.weight', row 1: .*inf"):
        measure_type_errors(ModelFile(path), calibration, {NAMES[0]: [Type.Q4_0]}, threads=1)


def test_experts_count_by_the_tokens_that_reach_them(generated, stats_of) -> None:
    model, calibration = ModelFile(generated(EXPERTS)), Calibration.read(stats_of(EXPERTS))
    (tensor,) = (tensor for tensor in model.tensors if tensor.name == "blk.0.ffn_down_exps.weight")

    def error(loads: list[float]) -> float:
        known = Calibration.read(stats_of(EXPERTS))
        known.loads = lambda tensor: np.array(loads)  # type: ignore[method-assign]
        return measure_type_errors(model, known, {tensor.name: [Type.Q4_0]})[tensor.name][Type.Q4_0]

    n = tensor.n_experts
    alone = [error([n * float(expert == each) for each in range(n)]) for expert in range(n)]
    assert error([1.0] * n) == pytest.approx(np.mean(alone))
    loads = calibration.loads(tensor)
    assert loads.shape == (n,)
    assert loads == pytest.approx(calibration.counts(tensor.name) / calibration.counts(tensor.name).mean())
    assert measure_type_errors(model, calibration, {tensor.name: [Type.Q4_0]})[tensor.name][Type.Q4_0] == (
        pytest.approx(loads @ alone / n)
    )
    assert error([0.0] * n) == pytest.approx(np.mean(alone))  # no token reached one of them
