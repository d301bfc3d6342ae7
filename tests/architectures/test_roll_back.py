"""Sequences of every architecture go back to an earlier token, and go on as one that was never longer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyquant.generation.sampling.session import Session
from pyquant.llama.model import LEARNED_POSITIONS, Model
from tests.support.architectures import NAMES, UNLIKE, save
from tests.support.oracle import Oracle
from tests.support.outcomes import reasons

WHY_NOT = reasons()
LENGTH = 1100  # windows of 32 tokens have moved on, and their cells hold other tokens
ROUNDED = 0.02  # of logits: parts of other lengths are summed in another order


@pytest.mark.oracle
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in UNLIKE else pytest.mark.slow)
        for name in NAMES
        if WHY_NOT[name] is None
    ],
)
def test_what_follows_is_what_follows_afresh(oracle: Oracle, name: str, tmp_path: Path) -> None:
    with Model(save(oracle, tmp_path, name)[name]) as model:
        n = next((t.shape[1] for t in model.file.tensors if t.name == LEARNED_POSITIONS), LENGTH)
        tokens = np.random.default_rng(1).integers(3, 100, n).astype(np.int32)
        with Session(model, n_ctx=n, n_sequences=1, threads=1) as session:
            for length in (n - 40, n // 2, 37):
                end = length + 20
                session.roll_back(0, 0)
                session.extend(0, tokens)
                session.roll_back(0, length)
                back = session.follow(0, tokens[length:end]).copy()
                session.roll_back(0, 0)
                session.extend(0, tokens[:length])
                afresh = session.follow(0, tokens[length:end])
                assert np.abs(back - afresh).max() < ROUNDED * afresh.std(), length
