"""Documents to tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFReader
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from pyquant.data.stdlib import Document

END = "<|endoftext|>"  # token 0: begins every text, as llama.cpp's BOS


def train_tokenizer(documents: list[Document], n_vocab: int) -> Tokenizer:
    """A byte-level BPE with GPT-2's splitting, which llama.cpp has under the name "gpt-2"."""
    tokenizer = _with_bytes(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=n_vocab,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((document.text for document in documents), trainer)
    return tokenizer


def _with_bytes(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def tokens_of(tokenizer: Tokenizer, documents: list[Document]) -> NDArray[np.uint16]:
    """(n,) all documents in turn, token 0 before each."""
    encoded = tokenizer.encode_batch([document.text for document in documents])
    return np.concatenate([np.array([0, *one.ids], np.uint16) for one in encoded])


def tokenizer_of(model: Path) -> Tokenizer:
    """The tokenizer that a GGUF file of the recipe carries."""
    fields = GGUFReader(model).fields
    tokens, merges = (fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "merges"))
    pairs = [tuple(merge.split(" ")) for merge in merges]
    return _with_bytes(models.BPE({token: i for i, token in enumerate(tokens)}, pairs))


def load_tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))
