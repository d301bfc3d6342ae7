"""Hessians that are collected while a model is rounded are those that a file would hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pyquant import _core, make_mode, quantize_model
from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.calibration import Calibration
from pyquant.calibration.collected import OfAllTokens, OfExperts
from pyquant.calibration.routed_tokens import RoutedTokens
from pyquant.errors import NotEnoughMemory, OutputError
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_name import EMBEDDINGS
from tests.support.models import EXPERTS, F32, ODD_ROWS, Model

StagedPass = _core.StagedPass
CHUNKS = {"n_ctx": 64, "n_chunks": 40, "random": 0.0, "process_output": True}


@pytest.fixture
def files(
    request: pytest.FixtureRequest, generated: Callable, text: Path, tmp_path: Path
) -> tuple[Path, ...]:
    """A model, its Hessian file, and a file of diagonals alone."""
    model = generated(request.param)
    calibrate_model(model, [text], tmp_path / "whole.gguf", **CHUNKS)
    calibrate_model(model, [text], tmp_path / "diagonals.gguf", imatrix_only=True, **CHUNKS)
    return model, tmp_path / "whole.gguf", tmp_path / "diagonals.gguf"


@pytest.fixture
def unshrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hessians as they are, not shrunk."""
    monkeypatch.setattr("pyquant.calibration.shrinkage.shrinkage", lambda *_: 0.0)


def test_sums_are_numpys(unshrunk: None, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((96, 48), np.float32)
    sums = OfAllTokens(48, 32, threads=2)
    for part in np.split(x, 3):
        sums.add(part)
    np.testing.assert_allclose(sums.hessian(0), x.T @ x / 96, atol=0.02)  # of numbers rounded to BF16
    assert sums.first == pytest.approx(x[[0, 32, 64]].mean(axis=0), abs=0.01)
    experts = random.permuted(np.tile(np.arange(4, dtype=np.int32), (96, 1)), axis=1)[:, :2].copy()
    each = random.standard_normal((96, 2, 48), np.float32)
    for inputs, rows_of in ((x[:, None], lambda of: x[of.any(axis=1)]), (each, lambda of: each[of])):
        routed = OfExperts(RoutedTokens(96, tmp_path, 0), 32, alike=False, threads=2)
        for part, sent in zip(np.split(inputs, 3), np.split(experts, 3)):
            routed.add(part, sent)
        for expert in range(3):
            rows = rows_of(experts == expert)
            np.testing.assert_allclose(routed.hessian(expert), rows.T @ rows / len(rows), atol=0.05)
        assert routed.hessian(4) is None


@pytest.mark.ci
@pytest.mark.parametrize("files", [F32, ODD_ROWS, EXPERTS], indirect=True)
def test_hessians_are_those_of_a_file(
    files, unshrunk: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, whole, diagonals = files
    known, met = Calibration.read(whole), []
    # In BF16, tokens whose choice was nearly a tie are sent to other experts.
    monkeypatch.setattr(_core, "StagedPass", lambda names, **_: StagedPass(names, allows_bf16=False))
    hold = Calibration.hold

    def compare(self: Calibration, name: str, collected: object) -> None:
        hold(self, name, collected)
        met.append(name)
        for expert in range(len(known.counts(name))):
            ours, theirs = self.hessian(name, expert), known.hessian(name, expert)
            assert (ours is None) == (theirs is None)
            if ours is not None and theirs is not None:
                scale = np.sqrt(np.outer(theirs.diagonal(), theirs.diagonal()))
                np.testing.assert_allclose(ours / scale, theirs / scale, atol=0.02)
        if (first := known.first_token(name)) is not None:
            np.testing.assert_allclose(self.first_token(name), first, atol=0.02 * np.abs(first).max())

    monkeypatch.setattr(Calibration, "hold", compare)
    made = quantize_model(
        model, tmp_path / "out.gguf", make_mode({"mode": "ggml:Q4_0", "hessian": diagonals})
    )
    rounded = {t.name for t in made.tensors if t.name in known.matrices and t.type.startswith("Q")}
    assert set(map(known.input_of, met)) == set(map(known.input_of, rounded))
    other = quantize_model(model, tmp_path / "b.gguf", make_mode({"mode": "ggml:Q4_0", "hessian": whole}))
    assert [t.without_gptq for t in made.tensors] == [t.without_gptq for t in other.tensors]
    for ours, theirs in zip(made.tensors, other.tensors):
        if theirs.squared_error:
            assert ours.squared_error == pytest.approx(theirs.squared_error, rel=0.02)


@pytest.mark.ci
@pytest.mark.parametrize("files", [F32, EXPERTS], indirect=True)
@pytest.mark.parametrize(
    "more", [{}, {"equalize": True, "error_propagation": 40}], ids=["alone", "propagated"]
)
def test_the_file_depends_neither_on_memory_nor_on_a_stop(files, tmp_path: Path, more: dict) -> None:
    model, _, diagonals = files
    mode = make_mode({"mode": "ggml:Q4_K_M", "hessian": diagonals, **more})
    quantize_model(model, tmp_path / "a.gguf", mode)
    quantize_model(model, tmp_path / "b.gguf", mode, memory=0, threads=1)
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
    if "equalize" in more:  # another temporary model each time
        return

    def stop(done: int, total: int, name: str) -> None:
        if done > 0.6 * total:
            raise KeyboardInterrupt

    checkpoint = tmp_path / "finished"
    with pytest.raises(KeyboardInterrupt):
        quantize_model(model, tmp_path / "c.gguf", mode, checkpoint=checkpoint, progress=stop)
    quantize_model(model, tmp_path / "c.gguf", mode, checkpoint=checkpoint)
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "c.gguf").read_bytes()


@pytest.mark.parametrize("files", [F32], indirect=True)
def test_room_is_asked_for_before_work(files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, diagonals = files
    mode, told = make_mode({"mode": "ggml:Q4_0", "hessian": diagonals}), []
    quantize_model(model, tmp_path / "a.gguf", mode, tell=told.append, memory=100_000)
    assert told[0].startswith("collecting Hessians: about ")
    assert told[0].endswith(" on disk")
    monkeypatch.setattr("pyquant.rounding.staged_memory.available_memory", lambda: 10_000)
    with pytest.raises(NotEnoughMemory, match=r"collecting Hessians: .* are free: give fewer chunks"):
        quantize_model(model, tmp_path / "b.gguf", mode)
    monkeypatch.undo()
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1 << 20}))
    with pytest.raises(OutputError, match="no room"):
        quantize_model(model, tmp_path / "b.gguf", mode, memory=0)
    assert not (tmp_path / "b.gguf").exists()


def test_too_few_tokens_are_said(text: Path, tmp_path: Path) -> None:
    model = Model(n_embd=256, n_ff=512, n_layer=1).write(tmp_path / "model.gguf")
    options = {**CHUNKS, "n_chunks": 6}
    calibrate_model(model, [text], tmp_path / "h.gguf", imatrix_only=True, **options)
    done = quantize_model(
        model, tmp_path / "out.gguf", make_mode({"mode": "ggml:Q4_0", "hessian": tmp_path / "h.gguf"})
    )
    why = {tensor.name: tensor.without_gptq for tensor in done.tensors}
    assert why["blk.0.attn_q.weight"] is None
    assert "384 tokens are too few for rows of 512" in str(why["blk.0.ffn_down.weight"])
    assert {t.name for t in ModelFile(tmp_path / "h.gguf").tensors if t.name.endswith(".hessian")} == set()


def test_a_file_that_is_only_tried_takes_no_pass(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Embeddings are rounded by their output-side Hessian, which is kept, and all else as with an imatrix."""
    model, statistics = Model(n_layer=1).write(tmp_path / "model.gguf"), tmp_path / "h.gguf"
    calibrate_model(
        model, [text], statistics, imatrix_only=True, output_side=4, output_side_of=[EMBEDDINGS], **CHUNKS
    )
    made = {}
    for by in ("hessian", "imatrix"):
        mode, path = make_mode({"mode": "ggml:Q4_0", "pure": True, by: statistics}), tmp_path / f"{by}.gguf"
        quantize_model(model, path, mode)
        made[by] = {tensor.name: bytes(tensor.data()) for tensor in ModelFile(path).tensors}
    monkeypatch.setattr("pyquant.rounding.collecting.write_collected", None)
    mode = make_mode({"mode": "ggml:Q4_0", "pure": True, "hessian": statistics})
    done = quantize_model(model, tmp_path / "tried.gguf", mode, collects=False)
    assert done.output_bytes == (tmp_path / "tried.gguf").stat().st_size
    for tensor in ModelFile(tmp_path / "tried.gguf").tensors:
        expected = made["hessian" if tensor.name == EMBEDDINGS else "imatrix"][tensor.name]
        assert bytes(tensor.data()) == expected, tensor.name
    assert made["hessian"][EMBEDDINGS] != made["imatrix"][EMBEDDINGS]
