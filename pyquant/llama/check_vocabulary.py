"""Check a vocabulary before llama.cpp loads it: one that has a token twice would end the process."""

from __future__ import annotations

import reprlib

from pyquant.errors import ModelFileError
from pyquant.models.model_file import ModelFile

TOKENS = "tokenizer.ggml.tokens"
NO_VOCABULARY = ("no_vocab", "none")  # tokenizers for which llama.cpp reads no tokens


def check_vocabulary(model: ModelFile) -> None:
    """Refuse a vocabulary that has a token twice.

    Every tokenizer of llama.cpp that reads tokens counts them and asserts that they differ
    (`llama_vocab::impl::load`). It gives an empty token the name "[EMPTY_7]", where 7 is its number.

    Raises ModelFileError: the message names the token and both of its numbers.
    """
    tokens = model.get(TOKENS)
    if model.get("tokenizer.ggml.model") in NO_VOCABULARY or not isinstance(tokens, list):
        return
    names = [token or f"[EMPTY_{number}]" for number, token in enumerate(tokens)]
    last = {name: number for number, name in enumerate(names)}
    if len(last) == len(names):
        return
    first, token = next((number, name) for number, name in enumerate(names) if last[name] != number)
    raise ModelFileError(
        f"{model.path}: the token {reprlib.repr(token)} is in its vocabulary twice, as number {first:,} and "
        f"{last[token]:,}; llama.cpp cannot run such a model"
    )
