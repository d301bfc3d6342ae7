"""Texts that a model generates: drawn by its likelihoods, the same again, and begun anew where it ends."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import chisquare

from pyquant import _core
from pyquant.data import model_path
from pyquant.llama import own_texts
from pyquant.llama.cache import cache_memory
from pyquant.llama.model import Model
from pyquant.llama.own_texts import MOST, OwnText, draw, most_together, uniform, write_tokens
from pyquant.models.model_file import ModelFile


def own(n: int, begin: Callable[[int], list[int]], seed: int = 0) -> list[OwnText]:
    return [OwnText(seed, number, begin) for number in range(n)]


def test_what_a_model_writes_depends_on_the_seed_alone() -> None:
    with Model(model_path()) as model:
        first, again, other = (
            write_tokens(model, own(3, lambda _: [5, 6], seed), 24, threads=1) for seed in (0, 0, 1)
        )
        assert first.shape == (3, 24)
        assert first.dtype == np.int32
        np.testing.assert_array_equal(first[:, :2], [[5, 6]] * 3)
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()
        assert len({tuple(sequence) for sequence in first}) == 3
        more = write_tokens(model, own(MOST + 4, lambda _: [5]), 4, threads=1)
        assert len({tuple(sequence) for sequence in more}) > MOST / 2


def test_texts_together_are_as_many_as_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    file = ModelFile(model_path())
    assert most_together(file, 512) == MOST
    monkeypatch.setattr(own_texts, "CACHE_BYTES", 40 * cache_memory(file, 512, 1))
    assert most_together(file, 512) == 40
    assert most_together(file, 1 << 20) == own_texts.FEWEST


def test_where_it_ends_it_is_said_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def begin(n_ends: int) -> list[int]:
        asked.append(n_ends)
        return [7, 8, 9]

    with Model(model_path()) as model:
        end = int(model.vocabulary.end_tokens()[0])
        monkeypatch.setattr(own_texts, "draw", lambda *_: end)
        written = write_tokens(model, own(1, begin), 10, threads=1)
    assert written.tolist() == [[7, 8, 9, 7, 8, 9, 7, 8, 9, 7]]
    assert asked == [0, 1, 2, 3]


def test_tokens_come_as_often_as_they_are_likely_and_allowed() -> None:
    probability = np.array([0.4, 0.1, 0.2, 0.25, 0.05])
    allowed = np.array([True, True, False, True, False])
    logits = np.log(probability).astype(np.float32) + 3
    numbers = [uniform(1, 2, position) for position in range(4000)]
    counts = np.bincount([draw(logits, allowed, number) for number in numbers], minlength=5)
    assert counts[~allowed].tolist() == [0, 0]
    expected = 4000 * probability[allowed] / probability[allowed].sum()
    assert chisquare(counts[allowed], expected).pvalue > 0.001


@pytest.mark.parametrize(("number", "token"), [(0.0, 1), (np.nextafter(1, 0), 3)])
def test_the_ends_of_the_sum_are_allowed_tokens(number: float, token: int) -> None:
    allowed = np.array([False, True, False, True, False])
    assert draw(np.zeros(5, np.float32), allowed, number) == token


def test_an_observer_lets_products_be_of_bf16() -> None:
    tokens = np.arange(MOST, dtype=np.int32)[:, None]
    with Model(model_path()) as model:
        logits = []
        for observer in (None, _core.Bf16Pass()):
            with model.context(n_ctx=1, n_seq=MOST, threads=1, observer=observer) as context:
                logits.append(context.decode(tokens, 0, np.ones(1, bool)).copy())
    difference = np.abs(logits[0] - logits[1]).max()
    assert 1e-4 < difference < 0.2 if _core.HAS_BF16_PRODUCTS else difference == 0
