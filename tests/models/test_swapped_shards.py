"""Shards that are not where they say, not of this model, or not there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pyquant.errors import ModelFileError
from pyquant.models.model_file import ModelFile
from tests.support.models import Model
from tests.support.oracle import Oracle


def shards(folder: Path, n_layer: int = 2) -> list[Path]:
    """A model in three shards."""
    n_tensors = len(Model(n_layer=n_layer).shapes())
    Model(n_layer=n_layer).write(folder / "m.gguf", tensors_per_shard=-(-n_tensors // 3))
    return sorted(folder.glob("m-*.gguf"))


def swap(a: Path, b: Path) -> None:
    a.rename(a.with_suffix(".away"))
    b.rename(a)
    a.with_suffix(".away").rename(b)


def test_swapped_names(tmp_path: Path) -> None:
    first, second, third = shards(tmp_path)
    assert ModelFile(first).paths == [first, second, third]
    swap(second, third)
    with pytest.raises(
        ModelFileError, match=r"00002-of-00003.gguf: shard 2 of 3 by its name, and its split.no is 2, "
    ):
        ModelFile(first)
    swap(second, third)
    swap(first, second)
    with pytest.raises(ModelFileError, match=r"00001-of-00003.gguf"):
        ModelFile(first)


@pytest.mark.oracle
def test_llama_quantize_refuses_them_too(oracle: Oracle, tmp_path: Path) -> None:
    first, second, third = shards(tmp_path)
    swap(second, third)
    oracle.refuses("invalid split file idx: 2", "llama-quantize", first, tmp_path / "out.gguf", "Q8_0", 2)


def test_a_shard_twice_or_missing(tmp_path: Path) -> None:
    first, second, third = shards(tmp_path)
    shutil.copy(second, third)
    with pytest.raises(ModelFileError, match=r"shard 3 of 3 by its name, and its split.no is 1, expected 2"):
        ModelFile(first)
    third.unlink()
    with pytest.raises(ModelFileError, match=r"00003-of-00003.gguf: no such file"):
        ModelFile(first)


def test_a_shard_of_another_model(tmp_path: Path) -> None:
    first, second, _ = shards(tmp_path)
    (tmp_path / "other").mkdir()
    shutil.copy(shards(tmp_path / "other", n_layer=3)[1], second)
    with pytest.raises(
        ModelFileError, match=r"its split.tensors.count is 30, expected 21: .* another model's"
    ):
        ModelFile(first)


def test_a_shard_that_was_split_elsewhere(tmp_path: Path) -> None:
    first, second, third = shards(tmp_path)
    (tmp_path / "other").mkdir()
    Model().write(tmp_path / "other" / "m.gguf", tensors_per_shard=8)
    shutil.copy(tmp_path / "other" / second.name, second)
    with pytest.raises(
        ModelFileError, match=rf"{third.name}: tensor '.*' is in {second.name} too: is one of"
    ):
        ModelFile(first)


def test_a_whole_file_in_the_place_of_a_shard(tmp_path: Path) -> None:
    first, second, _ = shards(tmp_path)
    Model(n_layer=1).write(second)
    with pytest.raises(ModelFileError, match=r"00002-of-00003.gguf: no 'split.no' in its metadata"):
        ModelFile(first)
