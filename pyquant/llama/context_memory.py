"""Estimate the memory of a context beside the model's weights, by the model's header."""

from __future__ import annotations

from pyquant.llama.cache import cache_memory, head_lengths, largest, mask_memory, state_memory
from pyquant.llama.cache_types import F16_CACHE, CacheTypes
from pyquant.llama.chunks import UBATCH, n_scored_together, together
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_name import EMBEDDINGS


def context_memory(
    model: ModelFile, n_ctx: int, n_ubatch: int = UBATCH, cache: CacheTypes = F16_CACHE
) -> int:
    """Return about how many bytes it takes to run a model over chunks of n_ctx tokens.

    It is the cache (`cache_memory`), the logits of a batch's scored tokens, and the activations of the
    tokens that are computed together, of which their logits, a layer's and what says which tokens see
    which are the largest.
    """
    logits = 4 * n_vocab(model) * (n_scored_together(n_ctx) + n_ubatch)
    activations = activation_memory(model, n_ubatch) + mask_memory(model, n_ctx)
    states = 2 * together(n_ctx) * state_memory(model)  # a layer's, as they are read and as they are written
    return cache_memory(model, n_ctx, together(n_ctx), cache) + logits + activations + states


def activation_memory(model: ModelFile, n_tokens: int) -> int:
    """Return about how many bytes a layer's activations take of tokens that are computed together."""
    key, _ = head_lengths(model)
    n_embd, inner = model.hyperparameter("embedding_length"), model.hyperparameter("ssm.inner_size")
    n_ff, n_used = largest(model, "feed_forward_length"), model.hyperparameter("expert_used_count")
    n_ff = max(n_ff, n_used * largest(model, "expert_feed_forward_length", n_ff))
    width = max(n_embd, inner, largest(model, "attention.head_count") * key)
    return 4 * n_tokens * (8 * width + 2 * n_ff)


def n_vocab(model: ModelFile) -> int:
    """Return how many tokens the vocabulary has, by the embeddings; 0: the model has none."""
    return next((tensor.shape[1] for tensor in model.tensors if tensor.name == EMBEDDINGS), 0)
