"""Sums of products of a matrix's inputs, as they are and rounded to BF16."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.panels import PANEL, full_matrix, triangle_size
from tests.support.bf16 import rounded

needs_bf16 = pytest.mark.skipif(not _core.HAS_BF16_PRODUCTS, reason="this CPU does not multiply BF16")
either_way = pytest.mark.parametrize(
    "bf16", [False, pytest.param(True, marks=needs_bf16)], ids=["F32", "BF16"]
)
# Strips of 64 columns, panels of 256, 4 rows of a tile, and what is left over of each.
widths = pytest.mark.parametrize("n_in", [1, 31, 64, 172, PANEL, PANEL + 1, 3 * PANEL - 5])


def hessian(x: NDArray[np.float32], weight: float, *, bf16: bool, n_threads: int = 1) -> NDArray[np.float32]:
    n_in = x.shape[1]
    sums = _core.sum_rows(x, weight, bf16=bf16, n_threads=n_threads)
    assert len(sums) == n_in + triangle_size(n_in)
    return full_matrix(sums[n_in:], n_in)


@either_way
@widths
@pytest.mark.parametrize("n_tokens", [1, 2, 17, 512, 1027])
def test_every_token_is_in_every_sum(n_in: int, n_tokens: int, bf16: bool) -> None:
    x = np.random.default_rng(n_tokens).integers(-9, 10, (n_tokens, n_in)).astype(np.float32)
    sums = _core.sum_rows(x, 0.5, bf16=bf16, n_threads=1)
    expected = x.T @ x / 2  # exact in float32
    np.testing.assert_array_equal(sums[:n_in], expected.diagonal())
    panels = [np.tril(expected)[first:, first : first + PANEL].ravel() for first in range(0, n_in, PANEL)]
    np.testing.assert_array_equal(sums[n_in:], np.concatenate(panels))


@needs_bf16
def test_inputs_are_rounded_to_the_nearest_bf16_and_ties_to_even() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 512)).astype(np.float32) * 2.0 ** rng.integers(-50, 50, 512).astype(np.float32)
    ulp = np.float32(2**-7)
    ties = (1 + ulp * (np.arange(128, dtype=np.float32) + np.float32(0.5))) * rng.choice([-1, 1], 128)
    x[0, :128], x[0, 128:256] = ties, np.nextafter(ties, 0).astype(np.float32)
    x = x.astype(np.float32)
    assert (rounded(x) != x).all()
    # A product of two BF16 has 16 bits, so of one token the sums are exact.
    np.testing.assert_array_equal(hessian(x, 1, bf16=True), rounded(x).T @ rounded(x))


@either_way
@pytest.mark.parametrize("n_tokens", [40, 512, 2048])
def test_sums_are_as_exact_as_float32(n_tokens: int, bf16: bool) -> None:
    rng = np.random.default_rng(n_tokens)
    x = (rng.laplace(size=(n_tokens, 300)) * rng.exponential(size=300) + 0.1).astype(np.float32)
    multiplied = (rounded(x) if bf16 else x).astype(np.float64)
    error = np.abs(hessian(x, 0.75, bf16=bf16) - 0.75 * multiplied.T @ multiplied)
    # A sum's own roundings come to this, as they go up about as often as down.
    assert (error <= 4 * np.sqrt(n_tokens) * 2**-24 * 0.75 * (np.abs(x).T @ np.abs(x))).all()


@needs_bf16
def test_rounding_is_lost_among_tokens() -> None:
    x = np.random.default_rng(0).normal(size=(4096, 300)).astype(np.float32)
    error = hessian(x, 1, bf16=True) / len(x) - x.astype(np.float64).T @ x / len(x)
    assert np.sqrt((error**2).mean()) < 2**-8 / np.sqrt(len(x))
    assert abs(error.diagonal().mean()) < 5e-6


@either_way
def test_threads_do_not_change_sums(bf16: bool) -> None:
    x = np.random.default_rng(0).normal(size=(700, 3 * PANEL - 5)).astype(np.float32)
    alone = _core.sum_rows(x, 0.3, bf16=bf16, n_threads=1)
    for n_threads in (2, 3, 8):
        np.testing.assert_array_equal(_core.sum_rows(x, 0.3, bf16=bf16, n_threads=n_threads), alone)


@either_way
def test_squares_are_summed_up_as_llama_imatrix_does(bf16: bool) -> None:
    x, weight = np.random.default_rng(0).normal(size=(50, 300)).astype(np.float32), np.float32(0.3)
    expected = np.zeros(300, np.float32)
    for token in x:
        expected += weight * (token * token)
    np.testing.assert_array_equal(_core.sum_rows(x, weight, bf16=bf16, n_threads=1)[:300], expected)
