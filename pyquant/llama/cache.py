"""Estimate the memory of a model's cache: what llama.cpp keeps of the tokens before, by its header."""

from __future__ import annotations

import numpy as np

from pyquant.llama.cache_types import F16_CACHE, CacheTypes
from pyquant.llama.chunks import UBATCH
from pyquant.llama.context import padded_ctx
from pyquant.models.model_file import ModelFile

# One layer of so many sees all tokens, the others a window of them, where a file does not say which.
WINDOWED = {"gemma2": 2, "gemma3": 6, "olmo2": 4}


def cache_memory(model: ModelFile, n_ctx: int, n_sequences: int, cache: CacheTypes = F16_CACHE) -> int:
    """Return about how many bytes the caches of sequences take.

    They hold keys and values of every layer with attention, in layers with a window about as many as it is
    long, and the float32 states of every recurrent layer.

    n_ctx: tokens of a sequence, which llama.cpp pads.
    n_sequences: each has room of its own.
    cache: types of keys and values.
    """
    states = model.hyperparameter("block_count") * state_memory(model)
    return n_sequences * (_attention(model, n_ctx, cache) + states)


def state_memory(model: ModelFile) -> int:
    """Return the bytes of a recurrent layer's states of one sequence, float32; 0 where it has none."""
    inner, state = model.hyperparameter("ssm.inner_size"), model.hyperparameter("ssm.state_size")
    convolved = max(0, model.hyperparameter("ssm.conv_kernel") - 1)
    groups = model.hyperparameter("ssm.group_count")
    return 4 * (inner * state + convolved * (inner + 2 * groups * state))


def mask_memory(model: ModelFile, n_ctx: int) -> int:
    """Return how many bytes say which tokens see which: fp16, of all tokens and of those in a window."""
    if not largest(model, "attention.head_count"):
        return 0
    cells = padded_ctx(n_ctx) + (_window(model, n_ctx) if _n_windowed(model) else 0)
    return 2 * UBATCH * cells


def head_lengths(model: ModelFile) -> tuple[int, int]:
    """Return the lengths of keys and of values of a head."""
    width = model.hyperparameter("embedding_length") // max(1, largest(model, "attention.head_count"))
    return (
        model.hyperparameter("attention.key_length", width),
        model.hyperparameter("attention.value_length", width),
    )


def largest(model: ModelFile, name: str, default: int = 0) -> int:
    """Return an integer of the metadata under the architecture's prefix; the largest where layers differ."""
    value = model.get(f"{model.architecture}.{name}")
    if isinstance(value, np.ndarray) and value.size:
        return int(value.max())
    return model.hyperparameter(name, default)


def _attention(model: ModelFile, n_ctx: int, cache: CacheTypes) -> int:
    n_layer, n_windowed = model.hyperparameter("block_count"), _n_windowed(model)
    n_head_kv = largest(model, "attention.head_count_kv", largest(model, "attention.head_count"))
    n_cells = (n_layer - n_windowed) * padded_ctx(n_ctx) + n_windowed * _window(model, n_ctx)
    per_cell = sum(length * size for length, size in zip(head_lengths(model), cache.bytes_per_value))
    return int(n_head_kv * per_cell * n_cells)


def _window(model: ModelFile, n_ctx: int) -> int:
    """Return the cells of a sequence in a layer with a window."""
    return min(padded_ctx(n_ctx), padded_ctx(model.hyperparameter("attention.sliding_window") + UBATCH))


def _n_windowed(model: ModelFile) -> int:
    """Return how many layers see a window of the tokens only."""
    n_layer = model.hyperparameter("block_count")
    if not model.hyperparameter("attention.sliding_window"):
        return 0
    key = "attention.sliding_window_pattern"
    if isinstance(pattern := model.get(f"{model.architecture}.{key}"), np.ndarray):
        return int(np.count_nonzero(pattern[:n_layer]))
    period = model.hyperparameter(key) or WINDOWED.get(model.architecture, 1)
    return n_layer - n_layer // period  # the last layer of each period sees all
