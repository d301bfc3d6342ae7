"""Vocabularies in which llama.cpp would meet a token twice, and end the process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from gguf import GGUFWriter

from pyquant import data
from pyquant.errors import ModelFileError
from pyquant.llama.model import Model as LlamaModel
from tests.support.models import Model

Change = Callable[[list[str]], None]


@dataclass(frozen=True)
class Changed(Model):
    """A model whose list of tokens is changed; sort: of its tokenizer."""

    change_tokens: Change = lambda tokens: None
    sort: str = "llama"

    def add_tokenizer(self, writer: GGUFWriter) -> None:
        super().add_tokenizer(writer)
        (metadata,) = writer.kv_data
        self.change_tokens(metadata["tokenizer.ggml.tokens"].value)
        metadata["tokenizer.ggml.model"].value = self.sort
        writer.add_token_merges(["a b"])


def model(path: Path, change: Change, sort: str) -> Path:
    shape = {
        "n_embd": 32,
        "n_ff": 32,
        "n_layer": 1,
        "n_head": 2,
        "n_head_kv": 2,
        "tied": True,
        "n_vocab": 400,
    }
    return Changed(**shape, change_tokens=change, sort=sort).write(path / f"{sort}.gguf")


def let(**numbers: str) -> Change:
    """Give tokens, by number, other names."""

    def change(tokens: list[str]) -> None:
        for number, name in numbers.items():
            tokens[int(number[1:])] = name

    return change


@pytest.mark.parametrize("sort", ["llama", "gpt2", "bert", "t5", "rwkv"])
def test_a_token_twice(tmp_path: Path, sort: str) -> None:
    path = model(tmp_path, let(_300="again", _390="again"), sort)
    with pytest.raises(ModelFileError) as raised:
        LlamaModel(path)
    assert str(raised.value).startswith(f"{path}: the token 'again' is in its vocabulary twice")
    assert "as number 300 and 390" in str(raised.value)


def test_tokens_that_are_the_same_to_llama_cpp(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"'again' .* 300 and 390"):
        LlamaModel(model(tmp_path, let(_300="again", _390="again\0but"), "llama"))
    with pytest.raises(ModelFileError, match=r"'\[EMPTY_300\]' .* 300 and 390"):
        LlamaModel(model(tmp_path, let(_300="", _390="[EMPTY_300]"), "llama"))


def test_vocabularies_that_llama_cpp_takes(tmp_path: Path) -> None:
    for change, sort in (
        (let(_300="", _390=""), "llama"),
        (let(_300="again", _390="again"), "none"),
        (let(_300="again", _390="Again"), "llama"),
    ):
        with LlamaModel(model(tmp_path, change, sort)) as loaded:
            assert loaded.n_vocab == 400


def test_pieces_and_ends_are_asked_for_once() -> None:
    with LlamaModel(data.model_path()) as loaded:
        vocabulary = loaded.vocabulary
        assert vocabulary.pieces() is vocabulary.pieces()
        assert vocabulary.pieces()[:300] == tuple(vocabulary.piece(token) for token in range(300))
        assert vocabulary.end_tokens() is vocabulary.end_tokens()
        with pytest.raises(ValueError, match="read-only"):
            vocabulary.end_tokens()[0] = 1


def test_a_model_without_tokens_has_none_to_ask_for(tmp_path: Path) -> None:
    """llama.cpp asserts it: GGML_ASSERT(type != LLAMA_VOCAB_TYPE_NONE)."""
    path = model(tmp_path, let(), "none")
    with LlamaModel(path) as running:
        vocabulary = running.vocabulary
        assert len(vocabulary.end_tokens()) == 0
        for call in (
            vocabulary.pieces,
            vocabulary.special_tokens,
            vocabulary.ordinary_tokens,
            lambda: vocabulary.piece(3),
            lambda: vocabulary.tokenize(b"a"),
        ):
            with pytest.raises(ModelFileError, match=f"^{path}: has no vocabulary"):
                call()
