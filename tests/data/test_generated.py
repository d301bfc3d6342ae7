"""Models with random weights: what is in them, and that llama.cpp runs them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from gguf import GGUFReader

from pyquant.data.generated import LEAST_VOCABULARY, GeneratedModel
from pyquant.llama.model import Model


@pytest.mark.parametrize("n_expert", [0, 3])
@pytest.mark.parametrize("tied", [False, True])
def test_llama_cpp_runs_it(n_expert: int, tied: bool, tmp_path: Path) -> None:
    generated = GeneratedModel(n_expert=n_expert, tied=tied, n_vocab=LEAST_VOCABULARY, type=Type.F16)
    with Model(generated.write(tmp_path / "model.gguf")) as model:
        tokens = model.vocabulary.tokenize("the rain in the theatre: ünï".encode())
        assert tokens[0] == model.vocabulary.bos
        assert 0 not in tokens  # bytes stand for what pieces do not spell
        with model.context(n_ctx=64) as context:
            logits = context.decode(tokens[None], 0, np.ones(len(tokens), bool))  # the context's memory
            assert logits.shape == (1, len(tokens), LEAST_VOCABULARY)
            assert np.isfinite(logits).all()


def test_the_file_holds_the_weights_that_it_says(tmp_path: Path) -> None:
    generated = GeneratedModel(n_layer=1, seed=7)
    stored = {tensor.name: tensor.data for tensor in GGUFReader(generated.write(tmp_path / "m.gguf")).tensors}
    assert {name: data.shape for name, data in stored.items()} == generated.shapes()
    for name, x in GeneratedModel(n_layer=1, seed=7).tensors().items():
        np.testing.assert_array_equal(stored[name], x)
    other = GeneratedModel(n_layer=1, seed=8).tensors()
    assert all((other[name] != x).any() for name, x in stored.items())


@pytest.mark.parametrize("n_expert", [0, 3])
def test_a_hollow_file_has_the_same_layout_and_takes_no_disk(n_expert: int, tmp_path: Path) -> None:
    generated = GeneratedModel(n_embd=512, n_ff=1024, n_expert=n_expert, type=Type.F16)
    whole, hollow = generated.write(tmp_path / "whole.gguf"), generated.write_hollow(tmp_path / "hollow.gguf")
    layouts = [
        [(t.name, list(t.shape), t.tensor_type, t.data_offset) for t in GGUFReader(path).tensors]
        for path in (whole, hollow)
    ]
    assert layouts[0] == layouts[1]
    assert hollow.stat().st_size == whole.stat().st_size > 1 << 20
    assert 512 * hollow.stat().st_blocks < 1 << 20
    assert not any(tensor.data.any() for tensor in GGUFReader(hollow).tensors)


def test_a_vocabulary_that_the_tokenizer_does_not_fit_in(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"n_vocab: the tokenizer has {LEAST_VOCABULARY} tokens, got 40"):
        GeneratedModel(n_vocab=40).write(tmp_path / "model.gguf")
