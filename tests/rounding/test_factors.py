"""Check what rounding has of inputs: the first token of a chunk counts more where attention mixes values."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.calibration import Calibration
from pyquant.models.model_file import ModelFile
from pyquant.rounding.factors import KEPT, Factors, matrices
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.dampening import FIRST_TOKEN, ON_ITS_OWN
from pyquant.schemes.settings import make_mode
from tests.support.models import Model


@pytest.mark.parametrize(("name", "counts_more"), [("attn_q", True), ("attn_v", True), ("ffn_up", False)])
def test_the_first_token_counts_for_what_attention_mixes(
    name: str, counts_more: bool, text: Path, tmp_path: Path
) -> None:
    path = Model(n_embd=64, n_ff=96, n_layer=1, seed=4).write(tmp_path / "model.gguf")
    calibrate_model(path, [text], tmp_path / "stats", n_ctx=48, n_chunks=4)
    stats = Calibration.read(tmp_path / "stats")
    (tensor,) = (tensor for tensor in ModelFile(path).tensors if tensor.name == f"blk.0.{name}.weight")
    (matrix,) = matrices(tensor, 32)
    with Factors(stats, ON_ITS_OWN, [matrix]) as factors:
        factor = factors.of(matrix)
    hessian = stats.hessian(tensor.name).astype(np.float64)
    expected = hessian + ON_ITS_OWN * hessian.trace() / 64 * np.eye(64)
    if counts_more:
        first = stats.first_token(tensor.name).astype(np.float64)
        expected += FIRST_TOKEN * np.outer(first, first)
    expected = expected[np.ix_(factor.order, factor.order)]
    np.testing.assert_allclose(factor.hessian, expected, rtol=1e-4, atol=1e-5 * expected.max())


def test_what_follows_is_made_while_one_is_at_work(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else says what comes next of experts whose Hessians are collected."""
    path = Model(n_embd=64, n_ff=96, n_layer=1, seed=4).write(tmp_path / "model.gguf")
    calibrate_model(path, [text], tmp_path / "stats", n_ctx=48, n_chunks=4)
    by_name = {tensor.name: tensor for tensor in ModelFile(path).tensors}
    ((up,), (down,)) = (matrices(by_name[f"blk.0.{name}.weight"], 32) for name in ("ffn_up", "ffn_down"))
    made, hessian = threading.Event(), Calibration.hessian

    def seen(self: Calibration, name: str, expert: int = 0) -> np.ndarray | None:
        if name == down.tensor.name:
            made.set()
        return hessian(self, name, expert)

    monkeypatch.setattr(Calibration, "hessian", seen)
    with Factors(Calibration.read(tmp_path / "stats"), ON_ITS_OWN, []) as factors:
        factors.of(up)
        assert not made.wait(0.1)
        factors.of(up, following=down)
        assert made.wait(30)


@pytest.mark.parametrize("how", ["in a file", "collected", "with error propagation"])
def test_an_experts_factor_serves_all_matrices_of_its_input(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    path = Model(n_embd=64, n_ff=96, n_layer=1, n_expert=KEPT + 1, seed=4).write(tmp_path / "model.gguf")
    whole = how == "in a file"
    calibrate_model(path, [text], tmp_path / "stats", n_ctx=48, n_chunks=16, imatrix_only=not whole)
    made, hessian = Counter[tuple[str, int]](), Calibration.hessian

    def seen(self: Calibration, name: str, expert: int = 0) -> np.ndarray | None:
        made[self.input_of(name), expert] += 1
        return hessian(self, name, expert)

    monkeypatch.setattr(Calibration, "hessian", seen)
    propagation = {"error_propagation": 16} if how == "with error propagation" else {}
    mode = make_mode({"mode": "ggml:Q4_0", "hessian": tmp_path / "stats", **propagation})
    quantize_model(path, tmp_path / "out.gguf", mode)
    assert sum(expert == KEPT for _, expert in made) == 2  # of gate and up, and of down
    assert set(made.values()) == {1}
