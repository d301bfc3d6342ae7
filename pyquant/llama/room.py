"""Ask for memory before llama.cpp takes it: where GGML gets none, it ends the process.

Only a limit on the address space (`ulimit -v`) is known beforehand; without one, nothing is asked.
"""

from __future__ import annotations

from pyquant.llama.cache_types import CacheTypes
from pyquant.machine.memory import require_memory
from pyquant.models.model_file import ModelFile

LOADING = 48 << 20  # vocabulary, buffers of the C library, and what else a model needs beside its weights
RUNNING = 64 << 20  # graphs, and what a context needs beside its cache and activations
STACK = 8 << 20  # of a thread


def require_for_model(file: ModelFile) -> None:
    """Refuse to load a model that cannot be mapped. Raises NotEnoughMemory."""
    n_bytes = sum(pqz.n_bytes for pqz in file.pqz_files) or file.n_bytes
    require_memory(n_bytes + LOADING, f"the weights of {file.path}")


def require_for_context(
    file: ModelFile,
    *,
    n_seq: int,
    n_ctx: int,
    n_cells: int,
    n_ubatch: int,
    n_vocab: int,
    n_threads: int,
    cache: CacheTypes,
) -> None:
    """Refuse a context whose cache, activations and threads do not fit.

    Parameters
    ----------
    n_seq, n_ctx
        Sequences, and tokens of each that are asked for.
    n_cells
        Tokens of all sequences together, in the cache, whose length llama.cpp rounds up.
    n_ubatch
        Tokens that are computed together.
    n_vocab
        Tokens of the vocabulary.
    cache
        Types of keys and values.

    Raises
    ------
    NotEnoughMemory
        The message names the model and the tokens.
    """
    n_embd, n_layer = file.hyperparameter("embedding_length"), file.hyperparameter("block_count")
    n_head = max(1, file.hyperparameter("attention.head_count"))
    n_head_kv = file.hyperparameter("attention.head_count_kv", n_head)
    key = file.hyperparameter("attention.key_length", n_embd // n_head)
    value = file.hyperparameter("attention.value_length", n_embd // n_head)
    n_ff = file.hyperparameter("feed_forward_length")
    key_bytes, value_bytes = cache.bytes_per_value
    cells = int(n_layer * n_head_kv * (key * key_bytes + value * value_bytes) * n_cells)
    attention = 4 * n_head * n_ubatch * n_cells
    activations = 4 * n_ubatch * (8 * max(n_embd, n_head * key) + 2 * n_ff + n_vocab)
    stacks = STACK * (n_threads - 1)
    asked = f"{n_seq} x {n_ctx:,}" if n_seq > 1 else f"{n_ctx:,}"
    rounded = f", for which llama.cpp takes {n_cells:,}" if n_cells != n_seq * n_ctx else ""
    require_memory(
        cells + attention + activations + stacks + RUNNING,
        f"a context of {asked} tokens{rounded}, of {file.path}",
    )
