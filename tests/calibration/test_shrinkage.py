"""Hessians of few tokens are shrunk as far as brings them nearest to those of many."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pyquant.calibration.collected import OfAllTokens, OfExperts
from pyquant.calibration.routed_tokens import RoutedTokens
from pyquant.calibration.shrinkage import PART, BetweenTexts, shrink_to_diagonal, shrinkage

N_IN, N_CTX = 40, 32


def mixing(seed: int) -> NDArray[np.float64]:
    """Make inputs of independent numbers correlated, and their columns of different sizes."""
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(N_IN, N_IN)) * np.exp(-np.arange(N_IN) / 8)[:, None] * np.exp(rng.normal(size=N_IN))
    )


def mixing_of_text(seed: int) -> NDArray[np.float64]:
    """Change part of what all texts share."""
    return mixing(0) + 1.5 * mixing(0).std(axis=0) * np.random.default_rng(seed).normal(size=(N_IN, N_IN))


def chunks(n_chunks: int, seed: int, together: int) -> NDArray[np.float32]:
    """Tokens of chunks; `together` neighbors have the same input."""
    rng = np.random.default_rng(seed)
    apart = rng.normal(size=(n_chunks * N_CTX // together, N_IN)) @ mixing(0)
    return np.repeat(apart, together, axis=0).astype(np.float32)


def moment(x: NDArray[np.float32]) -> NDArray[np.float64]:
    return x.T.astype(np.float64) @ x / len(x)


def share_of(moments: list[NDArray[np.float64]], counts: list[float]) -> float:
    between = BetweenTexts(len(moments[0]))
    for its, count in zip(moments, counts):
        between.add(its * count, count)
    return between.share


def distance(hessian: NDArray[np.floating] | None, true: NDArray[np.floating]) -> float:
    """The distance, in units of the true columns' sizes."""
    assert hessian is not None
    size = np.sqrt(true.diagonal())
    return float(np.linalg.norm((hessian - true) / np.outer(size, size)))


@pytest.mark.parametrize("together", [1, 8])
@pytest.mark.parametrize("n_chunks", [4, 32])
def test_no_share_is_nearer_to_the_true_hessian(together: int, n_chunks: int) -> None:
    true, shares = mixing(0).T @ mixing(0), np.linspace(0, 1, 41)
    ours, others = [], []
    for seed in range(30):
        x = chunks(n_chunks, seed, together)
        hessian = moment(x)
        target = np.diag(hessian.diagonal())
        share = shrinkage(x, n_chunks, hessian, target)
        ours.append(distance((1 - share) * hessian + share * target, true))
        others.append([distance((1 - other) * hessian + other * target, true) for other in shares])
    assert np.mean(ours) < 1.03 * np.min(np.mean(others, axis=0))
    if together == 8 and n_chunks == 4:
        assert np.mean(ours) < 0.85 * np.mean(others, axis=0)[0]


def test_texts_are_a_sample_of_texts() -> None:
    """Texts have correlations of their own; the true Hessian is that of all texts there could be."""
    shares, n_texts = np.linspace(0, 1, 41), 4
    true = np.mean([mixing_of_text(seed).T @ mixing_of_text(seed) for seed in range(10_000)], axis=0)
    ours, others, by_pieces = [], [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        texts = [
            rng.normal(size=(400, N_IN)) @ mixing_of_text(20_000 + 10 * seed + i) for i in range(n_texts)
        ]
        texts = [text.astype(np.float32) for text in texts]
        x = np.concatenate(texts)
        hessian = moment(x)
        target = np.diag(hessian.diagonal())
        share = 1 / PART * share_of([moment(text) for text in texts], [400] * n_texts)
        alone = shrinkage(x, 50, hessian, target)
        ours.append(distance((1 - share) * hessian + share * target, true))
        by_pieces.append(distance((1 - alone) * hessian + alone * target, true))
        others.append([distance((1 - other) * hessian + other * target, true) for other in shares])
    assert np.mean(ours) < 1.05 * np.min(np.mean(others, axis=0))
    assert np.mean(ours) < 0.9 * np.mean(by_pieces)


def test_texts_count_by_their_tokens_and_random_ones_not() -> None:
    texts = [
        chunks(n, seed, 1) @ np.diag(np.linspace(1, 2 + seed, N_IN, dtype=np.float32))
        for seed, n in enumerate((10, 30))
    ]
    random = chunks(20, 7, 1)[:, ::-1]
    all_of_them = moment(np.concatenate(texts))
    size = np.outer(*2 * [np.sqrt(all_of_them.diagonal())])
    variance = np.square((moment(texts[0]) - moment(texts[1])) / size) * (1 / 4 * 3 / 4)
    apart = np.square(all_of_them / size)
    for of_pairs in (variance, apart):
        np.fill_diagonal(of_pairs, 0)
    share = PART * variance.sum() / apart.sum()
    assert share_of([moment(text) for text in texts], [2.0, 6.0]) == pytest.approx(share, rel=1e-9)
    x, numbers = (
        np.concatenate([*texts, random]),
        np.repeat(np.array([0, 1, -1], np.int32), [10 * N_CTX, 30 * N_CTX, 20 * N_CTX]),
    )
    shrunk = moment(x).astype(np.float32)
    shrink_to_diagonal(shrunk, x, 60, numbers)
    np.testing.assert_allclose(shrunk[0, 1:], (1 - share) * moment(x)[0, 1:], rtol=1e-3)
    np.testing.assert_allclose(shrunk.diagonal(), moment(x).diagonal(), rtol=1e-5)
    one, none = moment(x).astype(np.float32), moment(x).astype(np.float32)
    shrink_to_diagonal(one, x, 60, np.minimum(numbers, 0))
    shrink_to_diagonal(none, x, 60)
    np.testing.assert_array_equal(one, none)


def test_bounds() -> None:
    x = chunks(8, 0, 1)
    hessian = moment(x)
    target = np.diag(hessian.diagonal())
    many = chunks(2000, 1, 1)
    assert shrinkage(many, 2000, moment(many), np.diag(moment(many).diagonal())) < 0.01
    assert shrinkage(x[:1], 8, hessian, target) == 1  # of one token nothing varies
    assert shrinkage(x, 8, target, target) == 1
    scale = np.exp(np.random.default_rng(2).normal(size=N_IN)).astype(np.float32)
    scaled = shrinkage(x * scale, 8, hessian * np.outer(scale, scale), target * np.outer(scale, scale))
    assert scaled == pytest.approx(shrinkage(x, 8, hessian, target), rel=1e-4)


def test_few_tokens_are_shrunk_to_the_diagonal(tmp_path: Path) -> None:
    x, true = chunks(4, 3, 4), mixing(0).T @ mixing(0)
    sums = OfAllTokens(N_IN, N_CTX)
    sums.add(x)
    shrunk = sums.hessian(0)
    assert distance(shrunk, true) < 0.8 * distance(moment(x), true)
    assert shrunk is not None
    np.testing.assert_allclose(shrunk.diagonal(), moment(x).diagonal(), rtol=0.01)  # BF16 products
    routed = OfExperts(RoutedTokens(len(x), tmp_path, 0), N_CTX, alike=False)
    routed.add(x[:, None], np.zeros((len(x), 1), np.int32))
    np.testing.assert_allclose(routed.hessian(0), shrunk, rtol=1e-3, atol=1e-3 * shrunk.max())


def test_experts_of_few_tokens_get_the_common_hessian(tmp_path: Path) -> None:
    """Expert 0 gets most tokens, 1 few, 2 others and many of them, 3 none."""
    common, other = chunks(60, 4, 1), chunks(60, 5, 1)[:, ::-1]
    x = np.concatenate([common, other])
    experts = np.zeros((len(x), 1), np.int32)
    experts[: len(common) : 64] = 1
    experts[len(common) :] = 2
    sums = OfExperts(RoutedTokens(len(x), tmp_path, 0), N_CTX, alike=True)
    for part in (slice(0, 1000), slice(1000, len(x))):
        sums.add(x[part, None], experts[part])
    of_all = moment(x)
    assert distance(sums.hessian(3), of_all) < 0.05 * distance(0 * of_all, of_all)

    def way_gone(expert: int) -> float:
        own = moment(x[experts[:, 0] == expert])
        target = of_all * own.trace() / of_all.trace()
        return 1 - distance(sums.hessian(expert), target) / distance(own, target)

    assert way_gone(1) > 0.3
    assert way_gone(0) < 0.1
    assert way_gone(2) < 0.1


@pytest.mark.parametrize("n_chunks", [(100, 100), (190, 10), (199, 1), (60, 60, 60, 20)])
def test_texts_that_are_alike_have_the_variance_of_their_tokens(n_chunks: tuple[int, ...]) -> None:
    """However unequal they are: the share is that by pieces of one text."""
    ours, by_pieces = [], []
    for seed in range(40):
        x = chunks(sum(n_chunks), seed, 1)
        texts = np.split(x, N_CTX * np.cumsum(n_chunks)[:-1])
        ours.append(share_of([moment(text) for text in texts], [len(text) for text in texts]) / PART)
        by_pieces.append(shrinkage(x, 200, moment(x), np.diag(moment(x).diagonal())))
    assert np.mean(ours) == pytest.approx(np.mean(by_pieces), rel=0.25)


def test_a_text_that_hardly_counts_changes_nothing() -> None:
    texts = [chunks(20, seed, 1) @ np.diag(np.linspace(1, 2 + seed, N_IN)) for seed in range(3)]
    moments = [moment(text) for text in texts]
    share = share_of(moments[:2], [1, 1])
    assert share_of(moments, [1, 1, 1e-7]) == pytest.approx(share, rel=1e-3)
    assert share_of(moments[:2], [1, 1e-9]) == 0 == share_of(moments[:1], [1])
    assert 0 < share_of(moments[:2], [1, 1e-3]) < 0.01 * share
