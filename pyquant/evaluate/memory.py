"""Estimate the memory of a comparison, from the models' headers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyquant.errors import ConfigError
from pyquant.evaluate.kept_logits import bytes_in_memory
from pyquant.llama.cache import cache_memory, mask_memory, state_memory
from pyquant.llama.cache_types import F16_CACHE, CacheTypes
from pyquant.llama.chunks import BATCH, UBATCH
from pyquant.llama.context_memory import activation_memory, context_memory, n_vocab
from pyquant.machine.memory import available_memory
from pyquant.models.model_file import AnyModel, ModelFile, open_model


@dataclass(frozen=True)
class Memory:
    """Bytes that a comparison takes.

    Attributes
    ----------
    weights : dict of Path to int
        Of each model. Files that are mapped count too, though the system may drop them.
    logits : int
        The base's logits that are kept.
    context : int
        What it takes to run the model that takes most: one context is alive at a time.
    """

    weights: dict[Path, int]
    logits: int
    context: int

    @property
    def working(self) -> int:
        """All that is not weights."""
        return self.logits + self.context

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self.weights.values()) + self.working


def memory_of_comparison(
    models: Sequence[AnyModel],
    *,
    n_ctx: int = 512,
    caches: Sequence[CacheTypes] | None = None,
    abreast: bool | None = None,
) -> Memory:
    """Return the memory that comparing models on a text takes.

    It is weights + logits + context: the base's logits of a batch, 4 n_vocab n_scored bytes but no less
    than 64 MiB, and a context as `context_memory` has it, the largest of all models'. Models that run side by
    side have no logits kept, but contexts: the base's, and two at least beside it.

    Parameters
    ----------
    models
        The base, and those that are compared with it; paths or ModelFiles.
    n_ctx
        Tokens of the longest chunk.
    caches
        Types of each model's cache; None: all of F16.
    abreast
        Whether models run side by side: over conversations, and where every position is scored. None: only
        where a chunk is longer than a batch.

    Raises
    ------
    ModelFileError
    """
    files = [open_model(model) for model in models]
    weights = {file.path: file.n_bytes for file in files}
    caches = [F16_CACHE] * len(files) if caches is None else caches
    if n_ctx > BATCH if abreast is None else abreast:
        base, *others = (abreast_memory(file, n_ctx, cache) for file, cache in zip(files, caches))
        return Memory(weights=weights, logits=0, context=base + 2 * max([base, *others]))
    return Memory(
        weights=weights,
        logits=bytes_in_memory(n_vocab(files[0]), n_ctx),
        context=max(context_memory(file, n_ctx, cache=cache) for file, cache in zip(files, caches)),
    )


def check_budget(
    models: Sequence[AnyModel],
    *,
    n_ctx: int,
    budget: int,
    caches: Sequence[CacheTypes] | None = None,
    abreast: bool | None = None,
) -> None:
    """Refuse a comparison that takes more than `budget` bytes; others are as in `memory_of_comparison`.

    Raises
    ------
    ConfigError
        With the sizes.
    """
    memory = memory_of_comparison(models, n_ctx=n_ctx, caches=caches, abreast=abreast)
    if memory.total > budget:
        weights = ", ".join(f"{path} {n_bytes / 1e6:,.0f} MB" for path, n_bytes in memory.weights.items())
        running = f"{memory.working / 1e6:,.0f} MB to run them over chunks of {n_ctx:,} tokens"
        raise ConfigError(
            f"budget-memory: {memory.total / 1e6:,.0f} MB are needed, {budget / 1e6:,.0f} MB allowed: "
            f"of weights {weights}, and {running}; "
            f"compare fewer models at once, or with a smaller context"
        )


def n_abreast(
    models: Sequence[ModelFile], caches: Sequence[CacheTypes], n_ctx: int, budget: int | None
) -> int:
    """Return how many contexts run side by side with a base over sequences of n_ctx tokens: two at least.

    models, caches: the base first, and the types of each one's cache.
    budget: bytes that they may take, with their weights; None: half of what the machine has left.
    """
    base, *others = (abreast_memory(model, n_ctx, cache) for model, cache in zip(models, caches))
    if budget is not None:
        room: float = budget - sum({model.path: model.n_bytes for model in models}.values())
    else:
        free = available_memory()
        room = math.inf if free is None else free / 2
    most = max([base, *others])
    return max(2, int(min((room - base) / most, len(models))))


def abreast_memory(model: ModelFile, n_ctx: int, cache: CacheTypes = F16_CACHE) -> int:
    """Return about how many bytes a model takes beside others: a sequence's cache, a batch's logits."""
    logits = 2 * 4 * n_vocab(model) * UBATCH  # as they are computed, and as they are read
    activations = activation_memory(model, UBATCH) + mask_memory(model, n_ctx)
    return cache_memory(model, n_ctx, 1, cache) + logits + activations + 2 * state_memory(model)
