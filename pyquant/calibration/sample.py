"""Choose the tokens that HESSIAN keeps: some of those that the model was run over, of each text its share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pyquant import limits
from pyquant.llama.chunks import Chunks

MOST_CHUNKS = int(limits.SEQUENCES.high)


def sample_chunks(texts: Sequence[NDArray[np.int32]], weights: Sequence[float]) -> NDArray[np.int32]:
    """Choose chunks of all texts, at even distances.

    texts: each (n_chunks, n_ctx) int32.
    weights: how much each text's tokens count: a text's share of the choice.
    Returns (n_chunks, n_ctx) int32: at most MOST_CHUNKS chunks.
    """
    sizes = np.array([len(text) for text in texts])
    parts = sizes * np.array(weights)
    wanted = np.ceil(parts / parts.sum() * min(MOST_CHUNKS, sizes.sum())).astype(int)
    kept = [spread(text, n) for text, n in zip(texts, wanted)]
    return spread(np.concatenate(kept), MOST_CHUNKS)


def thinned(texts: Sequence[Chunks], weights: Sequence[float], n: int) -> tuple[list[Chunks], list[float]]:
    """Take about n chunks of all texts, each counting for those that it stands for.

    weights: how much each text's tokens count.
    Returns: the chunks of each text, at least one, and their weights.
    """
    n_of_all = sum(text.n_chunks for text in texts)
    taken = [Chunks(spread(text.tokens, max(1, round(n * text.n_chunks / n_of_all)))) for text in texts]
    counts = (weight * text.n_chunks / few.n_chunks for weight, text, few in zip(weights, texts, taken))
    return taken, list(counts)


def spread(chunks: NDArray[np.int32], n: int) -> NDArray[np.int32]:
    """Choose n of the chunks, or all if there are fewer, at even distances."""
    return chunks[np.linspace(0, len(chunks) - 1, min(n, len(chunks))).round().astype(int)]
