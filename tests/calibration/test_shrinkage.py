"""Hessians of few tokens are shrunk as far as brings them nearest to those of many."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pyquant.calibration.collected import OfAllTokens, OfExperts
from pyquant.calibration.routed_tokens import RoutedTokens
from pyquant.calibration.shrinkage import shrinkage

N_IN, N_CTX = 40, 32


def mixing(seed: int) -> NDArray[np.float64]:
    """Make inputs of independent numbers correlated, and their columns of different sizes."""
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(N_IN, N_IN)) * np.exp(-np.arange(N_IN) / 8)[:, None] * np.exp(rng.normal(size=N_IN))
    )


def chunks(n_chunks: int, seed: int, together: int) -> NDArray[np.float32]:
    """Tokens of chunks; `together` neighbors have the same input."""
    rng = np.random.default_rng(seed)
    apart = rng.normal(size=(n_chunks * N_CTX // together, N_IN)) @ mixing(0)
    return np.repeat(apart, together, axis=0).astype(np.float32)


def moment(x: NDArray[np.float32]) -> NDArray[np.float64]:
    return x.T.astype(np.float64) @ x / len(x)


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
