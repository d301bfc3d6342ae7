"""How much memory llama.cpp's cache of keys and values takes, known from a model's header."""

from __future__ import annotations

from pyquant.llama.model import padded_ctx
from pyquant.models.model_file import ModelFile


def cache_memory(model: ModelFile, n_ctx: int, n_sequences: int) -> int:
    """Return the bytes of a cache: keys and values in 16 bits, of each token, layer and head that has them.

    Parameters
    ----------
    model
    n_ctx
        Tokens of a sequence, which llama.cpp pads.
    n_sequences
        Each has room of its own.
    """
    n_embd, n_layer = model.hyperparameter("embedding_length"), model.hyperparameter("block_count")
    n_head = max(1, model.hyperparameter("attention.head_count"))
    n_head_kv = model.hyperparameter("attention.head_count_kv", n_head)
    key = model.hyperparameter("attention.key_length", n_embd // n_head)
    value = model.hyperparameter("attention.value_length", n_embd // n_head)
    return 2 * n_layer * n_head_kv * (key + value) * n_sequences * padded_ctx(n_ctx)
