"""Tokens drawn at random: inputs that no text has, so that moments do not end where a text does."""

from __future__ import annotations

import numpy as np

from pyquant.llama.chunks import Chunks
from pyquant.llama.model import Model

RANDOM_TOKENS = "random tokens"  # what STATS says in place of a text's name
# Costs a matched calibration 1-2 % of divergence and saves a mismatched one more than 10 %:
# docs/compensation.md.
RANDOM_SHARE = 0.25
SEED = 0


def random_chunks(
    model: Model, texts: list[Chunks], weights: list[float], share: float
) -> tuple[Chunks, float]:
    """Chunks of ordinary tokens, all equally likely, one for each three or so of the texts' chunks; and the
    weight that gives their tokens this share of all."""
    n_of_texts = sum(text.n_chunks for text in texts)
    n_ctx = texts[0].n_ctx
    n_chunks = max(1, round(n_of_texts * share))
    weighted = sum(text.n_chunks * weight for text, weight in zip(texts, weights))
    tokens = np.random.default_rng(SEED).choice(model.ordinary_tokens(), (n_chunks, n_ctx)).astype(np.int32)
    return Chunks(tokens), weighted * share / (1 - share) / n_chunks
