"""Quantization inside llama.cpp, by the patched hook: the same files as `quantize_model` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyquant.errors import ConfigError, ModelFileError, OutputError
from pyquant.models.tensor_type import TensorType as Type
from pyquant.rounding.inside_llama import quantize_patched
from pyquant.schemes.settings import make_mode
from tests.support.imatrix import legacy_imatrix
from tests.support.models import IN_THE_BOX, MODELS, Model
from tests.support.same_file import assert_same_file

MODES = {
    "q4_0": {"mode": "q4_0"},
    "recentred": {"mode": "q4_0_recentred"},
    "multizero 0": {"mode": "q4_0_multizero", "radius": 0},
    "multizero 2": {"mode": "q4_0_multizero", "radius": 2},
    "multizero 7": {"mode": "q4_0_multizero", "radius": 7},
    "q8_0": {"mode": "q8_0"},
    "basic": {"mode": "q8_table", "table": "basic"},
    "balanced": {"mode": "q8_table", "table": "balanced"},
    "pure": {"mode": "q8_table", "table": "basic", "pure": True},
    "some tensors": {"mode": "q4_0_multizero", "radius": 1, "tensors": r"blk\.0\..*(attn_v|ffn)"},
    "some tensors, stock": {"mode": "ggml:Q6_K", "tensors": "attn"},
    "multizero 3": {"mode": "q4_0_multizero", "radius": 3},
    "Q4_K": {"mode": "ggml:Q4_K"},
    "F16": {"mode": "ggml:F16"},
}


@pytest.mark.parametrize("settings", MODES.values(), ids=MODES.keys())
@pytest.mark.parametrize("source", [*MODELS, IN_THE_BOX], indirect=True)
def test_quantizing_inside_llama_cpp_gives_the_same_file(
    source: Path, settings: dict[str, Any], tmp_path: Path
) -> None:
    assert_same_file(source, settings, tmp_path)


@pytest.mark.parametrize("name", ["q4_0", "multizero 2", "balanced", "some tensors", "Q4_K"])
@pytest.mark.parametrize("source", [*MODELS, IN_THE_BOX], indirect=True)
def test_and_with_an_importance_matrix(source: Path, name: str, tmp_path: Path) -> None:
    imatrix = legacy_imatrix(source, tmp_path / "imatrix.dat")
    assert_same_file(source, {**MODES[name], "imatrix": str(imatrix)}, tmp_path)


def test_a_split_model_inside_llama_cpp(tmp_path: Path) -> None:
    model = Model().write(tmp_path / "model.gguf", tensors_per_shard=5)
    (tmp_path / "out").mkdir()
    assert_same_file(model, MODES["multizero 2"], tmp_path / "out")


def test_the_hook_is_cleared(small_model: Path, tmp_path: Path) -> None:
    quantize_patched(small_model, tmp_path / "zeros.gguf", make_mode(MODES["multizero 7"]))
    assert_same_file(small_model, {"mode": "ggml:Q4_0"}, tmp_path)


def test_the_hook_is_cleared_after_a_failure(small_model: Path, tmp_path: Path) -> None:
    broken = Model(n_embd=32, n_ff=32, n_layer=1, change=lambda name, x: x * np.float32("nan"))
    with pytest.raises(ModelFileError, match=r"broken\.gguf: llama\.cpp cannot quantize it: .*"):
        quantize_patched(
            broken.write(tmp_path / "broken.gguf"), tmp_path / "out.gguf", make_mode(MODES["multizero 7"])
        )
    assert not list(tmp_path.glob("*out*"))
    assert_same_file(small_model, {"mode": "ggml:Q4_0"}, tmp_path)


@pytest.mark.parametrize("store", [{}, {"store": "q4_t"}], ids=["stock", "Q4_T"])
def test_a_weight_without_a_scale_is_refused(store: dict[str, str], tmp_path: Path) -> None:
    class Huge(Model):
        def tensors(self) -> dict[str, np.ndarray]:
            tensors = super().tensors()
            tensors["blk.0.ffn_up.weight"][3, 40] = 1e28
            return tensors

    model = Huge(n_embd=64, n_ff=96, type=Type.BF16).write(tmp_path / "huge.gguf")
    mode = make_mode({"mode": "q8_table", "table": "basic", **store})
    with pytest.raises(ModelFileError, match="quantized data validation failed"):
        quantize_patched(model, tmp_path / "out.gguf", mode, threads=2)
    assert not (tmp_path / "out.gguf").exists()


def test_quantizing_inside_llama_cpp_protects_files(small_model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.gguf"
    output.write_bytes(b"precious")
    with pytest.raises(OutputError, match="exists"):
        quantize_patched(small_model, output, make_mode(MODES["q4_0"]))
    assert output.read_bytes() == b"precious"
    quantize_patched(small_model, output, make_mode(MODES["q4_0"]), force=True)
    assert output.read_bytes()[:4] == b"GGUF"


def test_what_llama_cpp_cannot_choose_is_said(small_model: Path, tmp_path: Path) -> None:
    mode = make_mode({"mode": "ggml:F16", "tensors": "attn"})
    with pytest.raises(ConfigError, match=r"tensors: .* ggml:F16"):
        quantize_patched(small_model, tmp_path / "out.gguf", mode)
