"""Verifying drafted tokens: kernels equal their numpy twins, and what comes has the target's distribution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyquant import _core
from pyquant.generation.sampling.sampling import Sampling, uniform
from tests.generation.twins import verify as twin

SIZES = [1, 5, 31, 33, 500, 512, 513, 1500]


def some_row(random: np.random.Generator, n: int) -> np.ndarray:
    logits = random.standard_normal(n) * random.choice([0.1, 1, 5, 30])
    return (np.round(logits) if random.random() < 0.3 else logits).astype(np.float32)


def some_mask(random: np.random.Generator, n: int) -> np.ndarray | None:
    """None, or bits that allow few tokens, half of them or nearly all, but at least one."""
    if random.random() < 0.4:
        return None
    bits = random.random(-(-n // 32) * 32) < random.choice([0, 0.02, 0.5, 0.95])
    bits[random.integers(n)] = True
    return np.packbits(bits, bitorder="little").view(np.int32)


@given(seed=st.integers(0, 2**32 - 1))
def test_kernels_do_as_their_twins(seed: int) -> None:
    random = np.random.default_rng(seed)
    for n in SIZES:
        target, mask = some_row(random, n), some_mask(random, n)
        draft = target + some_row(random, n) / 8
        settings = {
            "temperature": float(random.choice([0.5, 1, 1.7])),
            "top_k": int(random.choice([0, 0, 1, 5, 40])),
            "top_p": float(random.choice([1, 0.95, 0.5])),
            "min_p": float(random.choice([0, 0, 0.05, 0.9])),
        }
        masks = None if mask is None else mask[None]
        numbers = random.random(3)
        of_draft = _core.draw(draft[None], masks, numbers[:1], n_threads=1, **settings)
        token = int(of_draft[0][0])
        for logits in (draft, None):
            done = _core.verify(target, logits, mask, token, numbers[1], numbers[2], **settings)
            expected = twin.verify(target, logits, mask, token, numbers[1], numbers[2], **settings)
            assert done[:2] == expected[:2], settings
            assert done[2] == pytest.approx(expected[2], abs=1e-9)
        drawn, log_p, *sure, seconds = _core.draw_sure(draft, mask, numbers[0], **settings)
        assert (drawn, log_p) == (token, of_draft[1][0])
        assert sure == pytest.approx(twin.certainty(draft, mask, token), abs=1e-9)
        assert seconds > 0
        if mask is None:
            assert sure[0] == _core.entropy(draft[None], 1)[0]


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.6])
@pytest.mark.parametrize(
    "truncation",
    [(0, 1.0, 0.0), (4, 1.0, 0.0), (0, 0.8, 0.0), (0, 1.0, 0.2), (5, 0.9, 0.1)],
    ids=["all", "top-k", "top-p", "min-p", "three"],
)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("drafts", ["model", "lookup"])
def test_verified_tokens_come_as_the_target_draws_them(
    temperature: float, truncation: tuple[int, float, float], masked: bool, drafts: str
) -> None:
    from scipy.stats import chisquare

    n, n_rows = 8, 3000
    target = np.log(np.array([0.3, 0.22, 0.17, 0.12, 0.08, 0.05, 0.04, 0.02])).astype(np.float32)
    draft = np.log(np.array([0.1, 0.35, 0.05, 0.2, 0.1, 0.1, 0.05, 0.05])).astype(np.float32)
    mask = np.array([0b10111110], np.int32) if masked else None
    top_k, top_p, min_p = truncation
    settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    masks = None if mask is None else np.tile(mask, (n_rows, 1))
    numbers = np.array([uniform(3, 0, row) for row in range(n_rows)])
    drafted = _core.draw(np.tile(draft, (n_rows, 1)), masks, numbers, n_threads=1, **settings)[0]
    of_draft = draft if drafts == "model" else None
    verified = [
        _core.verify(target, of_draft, mask, int(token), uniform(3, 1, row), uniform(3, 2, row), **settings)
        for row, token in enumerate(drafted)
    ]
    counts = np.bincount([token for _, token, _ in verified], minlength=n)
    # What the target draws by itself, by numbers that go evenly from 0 to 1.
    grid = (np.arange(40_000) + 0.5) / 40_000
    sampling = Sampling(temperature, top_k, top_p, min_p)
    all_masks = None if mask is None else np.tile(mask, (len(grid), 1))
    alone = sampling.draw(np.tile(target, (len(grid), 1)), grid, all_masks).tokens
    expected = np.bincount(alone, minlength=n) / len(grid)
    kept = expected > 0
    assert counts[~kept].sum() == 0
    if kept.sum() > 1:
        assert chisquare(counts[kept], expected[kept] / expected.sum() * n_rows).pvalue > 1e-4
    n_accepted = sum(accepted for accepted, _, _ in verified)
    assert 0 < n_accepted < n_rows or kept.sum() <= 2


def test_a_draft_like_its_target_is_always_accepted() -> None:
    random = np.random.default_rng(0)
    settings = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
    for _ in range(300):
        logits = some_row(random, 400)
        token = int(_core.draw(logits[None], None, random.random(1), n_threads=1, **settings)[0][0])
        assert _core.verify(logits, logits, None, token, np.nextafter(1, 0), 0.5, **settings)[:2] == (
            True,
            token,
        )


def test_logits_that_are_no_numbers_are_told() -> None:
    settings = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    broken, good = np.full(40, np.nan, np.float32), np.zeros(40, np.float32)
    assert np.isnan(_core.verify(broken, good, None, 3, 0.5, 0.5, **settings)[2])
    assert np.isnan(_core.verify(good, broken, None, 3, 0.5, 0.5, **settings)[2])


def test_what_does_not_fit_is_refused() -> None:
    row = np.zeros(40, np.float32)
    settings = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    for mask, token in [(None, 40), (None, -1), (np.zeros(2, np.int32), 3)]:
        with pytest.raises(IndexError, match="token"):
            _core.verify(row, row, mask, token, 0.5, 0.5, **settings)
    with pytest.raises(ValueError, match="logits"):
        _core.verify(row, row[:8].copy(), None, 3, 0.5, 0.5, **settings)
    with pytest.raises(ValueError, match="mask"):
        _core.draw_sure(row, np.zeros(3, np.int32), 0.5, **settings)


def test_of_nothing_that_is_allowed_nothing_is_sure() -> None:
    settings = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    row = np.zeros(40, np.float32)
    assert _core.draw_sure(row, np.zeros(2, np.int32), 0.5, **settings) == (-1, 0, 0, 0, 0, 0)
    assert np.isnan(_core.draw_sure(row * np.nan, None, 0.5, **settings)[1])
