"""Drawing tokens: the kernel equals its numpy twin, and draws what it should as often as it should."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyquant import _core
from pyquant.generation.sampling.sampling import uniform
from tests.generation.twins import draw as twin

SIZES = [1, 5, 31, 32, 33, 500, 512, 513, 1500]


def some_logits(random: np.random.Generator, n: int) -> np.ndarray:
    """Logits, from nearly flat to far beyond what exp can hold, at times with equal ones."""
    logits = random.standard_normal(n) * random.choice([0.1, 1, 5, 30, 80])
    return (np.round(logits) if random.random() < 0.3 else logits).astype(np.float32)


def some_mask(random: np.random.Generator, n: int) -> np.ndarray | None:
    """None, or bits that allow few tokens, half of them, or nearly all; at times none."""
    if random.random() < 0.4:
        return None
    bits = random.random(-(-n // 32) * 32) < random.choice([0, 0.02, 0.5, 0.95])
    return np.packbits(bits, bitorder="little").view(np.int32)


@given(seed=st.integers(0, 2**32 - 1))
def test_the_kernel_draws_what_the_twin_draws(seed: int) -> None:
    random = np.random.default_rng(seed)
    for n in SIZES:
        logits, mask = some_logits(random, n), some_mask(random, n)
        settings = {
            "temperature": float(random.choice([0, 0.5, 1, 1.7])),
            "top_k": int(random.choice([0, 0, 1, 5, 40])),
            "top_p": float(random.choice([1, 0.95, 0.5, 0.01])),
            "min_p": float(random.choice([0, 0, 0.05, 0.9])),
        }
        number = float(random.choice([random.random(), 0, np.nextafter(1, 0)]))
        masks = None if mask is None else mask[None]
        numbers = np.array([number])
        drawn = _core.draw(logits[None], masks, numbers, n_threads=1, **settings)
        token, log_p, allowed, _ = (values[0] for values in drawn)
        expected = twin.draw(logits, mask, number, **settings)
        assert (token, allowed) == (expected[0], expected[2]), settings
        assert log_p == pytest.approx(expected[1], abs=1e-9)
        assert _core.entropy(logits[None], 1)[0] == pytest.approx(twin.entropy(logits), abs=1e-9)
        if mask is not None:
            rows = np.stack([logits[::-1], logits])
            free = _core.draw(rows, None, np.repeat(numbers, 2), n_threads=1, **settings)
            again = _core.draw_again(rows, np.array([1]), free[3], masks, numbers, **settings)
            for values, of_draw in zip(again, drawn):
                np.testing.assert_array_equal(values, of_draw)


def test_rows_do_not_depend_on_threads_or_on_each_other() -> None:
    random = np.random.default_rng(0)
    logits = np.stack([some_logits(random, 700) for _ in range(7)])
    numbers = random.random(7)
    settings = {"temperature": 0.9, "top_k": 50, "top_p": 0.9, "min_p": 0.0}
    together = _core.draw(logits, None, numbers, n_threads=3, **settings)
    for i in range(7):
        alone = _core.draw(logits[i : i + 1], None, numbers[i : i + 1], n_threads=1, **settings)
        for values, of_one in zip(together, alone):
            np.testing.assert_array_equal(values[i], of_one[0])


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}, [0, 1, 2, 3, 4]),
        ({"temperature": 2.0, "top_k": 3, "top_p": 1.0, "min_p": 0.0}, [0, 1, 2]),
        ({"temperature": 1.0, "top_k": 0, "top_p": 0.7, "min_p": 0.0}, [0, 1]),
        ({"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.3}, [0, 1, 2]),
    ],
)
@pytest.mark.parametrize("masked", [False, True])
def test_tokens_come_as_often_as_they_should(
    settings: dict[str, float], left: list[int], masked: bool
) -> None:
    from scipy.stats import chisquare

    p = np.array([0.4, 0.35, 0.15, 0.07, 0.03])
    mask, n_rows = None, 40_000
    if masked:  # before everything else, the most likely token is not allowed
        mask = np.full((n_rows, 1), 0b11110, np.int32)
        left = {5: [1, 2, 3, 4], 3: [1, 2, 3], 2: [1, 2]}[len(left)]
        left = [1, 2] if settings["min_p"] else left
    logits = np.tile(np.log(p).astype(np.float32), (n_rows, 1))
    numbers = np.array([uniform(1, 2, row) for row in range(n_rows)])
    tokens, log_p, allowed, _ = _core.draw(logits, mask, numbers, n_threads=2, **settings)
    counts = np.bincount(tokens, minlength=5)
    assert np.flatnonzero(counts).tolist() == left
    expected = p[left] ** (1 / settings["temperature"])
    assert chisquare(counts[left], expected / expected.sum() * n_rows).pvalue > 1e-4
    np.testing.assert_allclose(np.exp(log_p), p[tokens], rtol=1e-6)
    np.testing.assert_allclose(allowed, 0.6 if masked else 1, rtol=1e-6)


def test_a_mask_that_allows_nothing_and_logits_that_are_no_numbers_are_told() -> None:
    settings = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    none, _, allowed, _ = _core.draw(
        np.zeros((1, 40), np.float32), np.zeros((1, 2), np.int32), np.array([0.5]), n_threads=1, **settings
    )
    assert (none[0], allowed[0]) == (-1, 0)
    broken = np.full((1, 40), np.nan, np.float32)
    token, log_p, _, _ = _core.draw(broken, None, np.array([0.5]), n_threads=1, **settings)
    assert token[0] == 0
    assert np.isnan(log_p[0])


def test_allowed_tokens_far_below_all_others_keep_their_ratios() -> None:
    logits = np.array([[200.0, 1.0, 0.0, -1.0]], np.float32)
    mask = np.array([[0b1110]], np.int32)
    settings = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    tokens = [
        _core.draw(logits, mask, np.array([u]), n_threads=1, **settings)[0][0] for u in (0.6, 0.7, 0.95)
    ]
    assert tokens == [1, 2, 3]  # of e, 1 and 1/e


def test_random_numbers_depend_on_all_that_names_them() -> None:
    numbers = {uniform(*key) for key in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0, 1)]}
    assert len(numbers) == 5
    for key in [(0, 0, 0, 0), (2**32 - 1, 2**52 + 7, 2**20, 9), (3, 4, 5, 6)]:
        seed, sample, position, attempt = key
        generator = np.random.Philox(key=[seed, sample], counter=[position, attempt, 0, 0])
        assert uniform(*key) == np.random.Generator(generator).random()
    assert uniform(3, 4, 5) == uniform(3, 4, 5)
    many = np.array([uniform(0, 0, i) for i in range(4000)])
    assert abs(many.mean() - 0.5) < 0.02
    assert 0 <= many.min() < many.max() < 1


@pytest.mark.parametrize("truncation", [{"top_k": 0}, {"top_k": 2}])
def test_the_least_temperature_takes_the_most_likely_token(truncation: dict[str, int]) -> None:
    # 1 / temperature is no float32 any more.
    settings = {"temperature": 1e-44, "top_p": 1.0, "min_p": 0.0, **truncation}
    logits = np.array([1, 3, 2], np.float32)
    drawn = _core.draw(logits[None], None, np.array([0.9]), n_threads=1, **settings)
    token, log_p, _, _ = (values[0] for values in drawn)
    assert token == 1
    assert (token, log_p) == pytest.approx(twin.draw(logits, None, 0.9, **settings)[:2])


def test_logits_that_are_no_numbers_are_told() -> None:
    logits = np.array([1, np.nan, 2], np.float32)
    settings = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    assert np.isnan(_core.draw(logits[None], None, np.array([0.9]), n_threads=1, **settings)[1][0])
