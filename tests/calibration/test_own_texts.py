"""Texts that a model writes: drawn by its own likelihoods, the same again, and begun anew where it ends."""

from __future__ import annotations

import numpy as np
import pytest

from pyquant.calibration.own_texts import _mask, write_tokens
from pyquant.data import model_path
from pyquant.generation.sampling.sampling import Drawn, Sampling
from pyquant.llama.model import Model


def test_what_a_model_writes_depends_on_the_seed_alone() -> None:
    with Model(model_path()) as model:
        first, again, other = (
            write_tokens(model, 3, 24, lambda _: [5, 6], seed=seed, threads=1) for seed in (0, 0, 1)
        )
        assert first.shape == (3, 24)
        assert first.dtype == np.int32
        np.testing.assert_array_equal(first[:, :2], [[5, 6]] * 3)
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()
        assert len({tuple(sequence) for sequence in first}) == 3
        more = write_tokens(model, 20, 4, lambda _: [5], threads=1)  # more than are continued together
        assert len({tuple(sequence) for sequence in more}) > 10


def test_where_it_ends_it_is_said_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def begin(n_ends: int) -> list[int]:
        asked.append(n_ends)
        return [7, 8, 9]

    with Model(model_path()) as model:
        ends = model.vocabulary.end_tokens()

        def end(_sampling: Sampling, logits: np.ndarray, *_arguments: object, **_named: object) -> Drawn:
            zeros = np.zeros(len(logits))
            return Drawn(np.full(len(logits), ends[0]), zeros, zeros, np.zeros((len(logits), 2)))

        monkeypatch.setattr(Sampling, "draw", end)
        written = write_tokens(model, 1, 10, begin, threads=1)
    assert written.tolist() == [[7, 8, 9, 7, 8, 9, 7, 8, 9, 7]]
    assert asked == [0, 1, 2, 3]


def test_only_tokens_of_the_mask_are_drawn() -> None:
    mask = np.tile(_mask([3, 40, 64], 70), (500, 1))
    sampling = Sampling(temperature=1, top_k=0, top_p=1, min_p=0)
    numbers = np.random.default_rng(0).random(500)
    drawn = sampling.draw(np.zeros((500, 70), np.float32), numbers, mask).tokens
    assert set(drawn.tolist()) == {3, 40, 64}
