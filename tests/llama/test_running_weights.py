"""Matrices that are changed while a model runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyquant.llama.model import Model
from pyquant.llama.running_weights import RunningWeights


def test_tied_embeddings_are_changed_as_the_output_matrix_too_and_restored(small_model: Path) -> None:
    tokens = np.array([[1, 2, 4, 5]], np.int32)
    with Model(small_model, changing=True) as running:
        weights = RunningWeights(running)
        with running.context(n_ctx=tokens.size, threads=1) as context:

            def logits() -> np.ndarray:
                context.clear()
                return context.decode(tokens, 0, np.ones(tokens.size, bool)).copy()

            before = logits()
            with weights.copied("token_embd.weight") as copy:
                copy[3] = 0
                changed = logits()
            after = logits()
    assert not changed[..., 3].any()
    others = np.arange(running.n_vocab) != 3
    assert (changed[..., others] == before[..., others]).all()
    assert before[..., 3].all()
    assert (after == before).all()
