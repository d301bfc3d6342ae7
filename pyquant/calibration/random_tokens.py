"""Draw tokens at random: inputs that texts leave out, so that moments know their directions too."""

from __future__ import annotations

import numpy as np

from pyquant.llama.chunks import Chunks
from pyquant.llama.model import Model

RANDOM_TOKENS = "random tokens"  # what HESSIAN says in place of a text's name
# Costs an in-domain calibration 1-2 % of KLD and saves an out-of-domain one more than 10 %:
# docs/methods/hessian_statistics.md.
RANDOM_SHARE = 0.25
SEED = 0


def random_chunks(
    model: Model, texts: list[Chunks], weights: list[float], share: float
) -> tuple[Chunks, float]:
    """Draw chunks of ordinary tokens, all equally likely.

    model: whose vocabulary they are of.
    texts, weights: the texts' chunks, and how much each text's tokens count.
    share: the share of all weighted tokens that the random ones are to have, from 0 to below 1.
    Returns: the chunks, and the weight of their tokens.
    """
    n_of_texts = sum(text.n_chunks for text in texts)
    n_ctx = texts[0].n_ctx
    n_chunks = max(1, round(n_of_texts * share))
    weighted = sum(text.n_chunks * weight for text, weight in zip(texts, weights))
    ordinary = model.vocabulary.ordinary_tokens()
    tokens = np.random.default_rng(SEED).choice(ordinary, (n_chunks, n_ctx)).astype(np.int32)
    return Chunks(tokens), weighted * share / (1 - share) / n_chunks
