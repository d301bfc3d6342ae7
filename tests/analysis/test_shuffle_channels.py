"""A model whose channels stand in another order computes the same, and leaves the grid of its blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import MODEL_ARCH

from analysis.shuffle_channels import shuffle_channels
from pyquant.errors import ModelFileError, OutputError
from pyquant.llama.model import Model
from pyquant.rounding.dequantize import dequantize_model
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.family import Family
from tests.support.models import Model as Graph

SIZES = {
    "embedding_length": 128, "feed_forward_length": 96,
    "attention.head_count": 2, "attention.head_count_kv": 1, "attention.key_length": 64,
}  # fmt: skip
TOKENS = np.arange(3, 35, dtype=np.int32)[None]


@pytest.fixture(params=["llama", "qwen2"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Two heads of queries for one of keys, each as wide as two blocks; output of its own."""
    path = tmp_path / "model.gguf"
    if request.param == "qwen2":
        biases = ("attn_q", "attn_k", "attn_v")
        return Family(MODEL_ARCH.QWEN2, SIZES, biases=biases, pairs=True).write(path)
    return Graph(n_embd=128, n_ff=96, n_layer=2, n_head=2, n_head_kv=1, tied=False, n_vocab=300).write(path)


def logits(path: Path) -> np.ndarray:
    with Model(path) as model, model.context(n_ctx=32, threads=1) as context:
        return context.decode(TOKENS, 0, np.ones(TOKENS.shape[1], bool)).copy()


def test_it_computes_the_same(model: Path, tmp_path: Path) -> None:
    shuffle_channels(model, tmp_path / "out.gguf")
    shuffle_channels(model, tmp_path / "other.gguf", seed=2)
    assert (tmp_path / "out.gguf").read_bytes() != (tmp_path / "other.gguf").read_bytes()
    before, after = logits(model), logits(tmp_path / "out.gguf")
    np.testing.assert_allclose(after, before, atol=1e-2 * before.std())


def test_every_matrix_leaves_the_grid(model: Path, tmp_path: Path) -> None:
    mode = make_mode({"mode": "ggml:Q4_1", "pure": True})
    quantize_model(model, tmp_path / "q4_1.gguf", mode)
    dequantize_model(tmp_path / "q4_1.gguf", tmp_path / "on-grid.gguf", "F16")
    shuffle_channels(tmp_path / "on-grid.gguf", tmp_path / "off-grid.gguf")

    def errors(source: str) -> list[float]:
        done = quantize_model(tmp_path / source, tmp_path / "again.gguf", mode, force=True)
        return [tensor.squared_error for tensor in done.tensors if tensor.squared_error is not None]

    on, off = errors("on-grid.gguf"), errors("off-grid.gguf")
    assert len(on) == len(off) == 2 * 7 + 2
    assert all(100 * a < b for a, b in zip(on, off))


def test_a_quantized_model_is_refused(model: Path, tmp_path: Path) -> None:
    quantize_model(model, tmp_path / "q8.gguf", make_mode({"mode": "ggml:Q8_0"}))
    with pytest.raises(ModelFileError, match=r"q8\.gguf: .* is Q8_0; floats are expected"):
        shuffle_channels(tmp_path / "q8.gguf", tmp_path / "out.gguf")
    assert not (tmp_path / "out.gguf").exists()


def test_nothing_is_overwritten(model: Path) -> None:
    with pytest.raises(OutputError):
        shuffle_channels(model, model)
