"""Check what `pyquant error` says of files that differ by more than their weights, and what it refuses."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

from pyquant.errors import ModelFileError
from pyquant.inspect.error_map import measure_error
from tests.support.gguf_file import finish
from tests.support.models import Model


def test_what_differs_besides_weights(tmp_path: Path) -> None:
    base = Model(n_vocab=320, tied=False).write(tmp_path / "base.gguf")
    model = Model(n_vocab=330, tied=True, n_head_kv=2).write(tmp_path / "model.gguf")
    found = measure_error(base, model).to_json()
    assert found["only_in_base"] == ["output.weight"]
    assert found["only_in_model"] == []
    assert found["not_compared"]["token_embd.weight"] == "shapes [64, 320] and [64, 330]"
    assert found["not_compared"]["blk.1.attn_k.weight"] == "shapes [64, 64] and [64, 32]"
    assert len(found["tensors"]) + len(found["not_compared"]) + 1 == len(Model().tensors())
    assert found["metadata"]["llama.attention.head_count_kv"] == {"base": "4", "model": "2"}
    tokens = found["metadata"]["tokenizer.ggml.tokens"]
    assert tokens == {"base": "320 values", "model": "330 values, [320] = '<unused27>'"}
    assert "general.architecture" not in found["metadata"]
    swapped = measure_error(model, base)
    assert swapped.difference.only_in_model == ["output.weight"]
    assert not swapped.identical


def write_tensors(
    path: Path, tensors: dict[str, np.ndarray], architecture: str = "llama", **keys: str
) -> Path:
    writer = GGUFWriter(path, architecture)
    for key, value in keys.items():
        writer.add_string(key, value)
    for name, x in tensors.items():
        writer.add_tensor(name, x)
    finish(writer)
    return path


X = np.ones((4, 32), np.float32)


def test_metadata_in_one_file_only_is_shortened(tmp_path: Path) -> None:
    base = write_tensors(tmp_path / "a.gguf", {"x": X}, long="y" * 500)
    model = write_tensors(tmp_path / "b.gguf", {"x": X})
    shown, missing = measure_error(base, model).difference.metadata["long"]
    assert shown == "'" + "y" * 56 + "..."
    assert missing is None


def test_values_that_are_no_numbers_are_equal(tmp_path: Path) -> None:
    paths = [tmp_path / "a.gguf", tmp_path / "b.gguf"]
    for path, last in zip(paths, (1.0, 2.0)):
        writer = GGUFWriter(path, "llama")
        writer.add_float32("scale", np.nan)
        writer.add_array("scales", [np.nan, last])
        writer.add_tensor("x", X)
        finish(writer)
    assert measure_error(paths[0], paths[0]).identical
    found = measure_error(*paths).difference.metadata
    assert found == {"scales": ("2 values, [1] = 1.0", "2 values, [1] = 2.0")}


def test_integers_are_no_weights(tmp_path: Path) -> None:
    tensors = {"x": X, "ids": np.arange(8, dtype=np.int32)}
    paths = [write_tensors(tmp_path / f"{name}.gguf", tensors) for name in "ab"]
    assert measure_error(*paths).difference.not_compared == {"ids": "type I32"}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", ["a", "b"])
def test_weights_that_are_not_finite_are_named(tmp_path: Path, side: str, bad: float) -> None:
    broken = X.copy()
    broken[2, 7] = bad
    paths = [write_tensors(tmp_path / f"{s}.gguf", {"x": broken if s == side else X}) for s in "ab"]
    with pytest.raises(ModelFileError, match=rf"{side}\.gguf: tensor 'x', weight \[7, 2\]: {bad}"):
        measure_error(*paths)


def test_weights_that_cannot_be_squared(tmp_path: Path) -> None:
    paths = [write_tensors(tmp_path / f"{name}.gguf", {"x": X * 1e30}) for name in "ab"]
    with pytest.raises(ModelFileError, match="tensor 'x': weights too large"):
        measure_error(*paths)


def test_other_architectures_are_refused(tmp_path: Path) -> None:
    base = write_tensors(tmp_path / "a.gguf", {"x": X})
    model = write_tensors(tmp_path / "b.gguf", {"x": X}, architecture="qwen2")
    with pytest.raises(ModelFileError, match=r"b\.gguf: of architecture qwen2, but .*a\.gguf is llama"):
        measure_error(base, model)


def test_nothing_in_common_is_refused(tmp_path: Path) -> None:
    base = write_tensors(tmp_path / "a.gguf", {"x": X, "y": X})
    model = write_tensors(tmp_path / "b.gguf", {"x": X[:2], "z": X})
    with pytest.raises(ModelFileError, match="no tensor of the name and shape"):
        measure_error(base, model)


def test_an_importance_matrix_of_another_model_is_refused(tmp_path: Path) -> None:
    base = write_tensors(tmp_path / "a.gguf", {"x": X})
    # one tensor: its name, number of calls, values
    legacy = struct.pack("<ii1sii32f", 1, 1, b"z", 1, 32, *np.ones(32))
    (tmp_path / "m.imatrix").write_bytes(legacy)
    with pytest.raises(ModelFileError, match="knows no tensor of"):
        measure_error(base, base, imatrix=tmp_path / "m.imatrix")
