from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pyquant import _core
from pyquant.formulas import RUN_BINS, cosine, entropy, geometric_runs, rmse, shares, snr_db
from tests.twins import kernels as reference

COUNTS = st.lists(st.integers(0, 10**12), min_size=1, max_size=256).filter(any)


@given(COUNTS)
def test_entropy_is_scipys(counts: list[int]) -> None:
    assert entropy(counts) == pytest.approx(stats.entropy(counts, base=2), abs=1e-12)


def test_entropy_of_nothing_and_of_one_code() -> None:
    assert entropy([0, 0]) == 0
    assert entropy([5, 0]) == 0
    assert entropy(np.ones(16)) == 4


@given(COUNTS)
def test_shares_add_up(counts: list[int]) -> None:
    assert shares(counts).sum() == pytest.approx(1)
    assert not shares([0, 0, 0]).any()


@given(st.floats(0, 1))
def test_geometric_runs_are_scipys(p: float) -> None:
    runs = geometric_runs(p)
    assert runs.shape == (RUN_BINS,)
    assert runs.sum() == pytest.approx(1)
    if 1e-9 < p < 1:  # scipy warns of smaller ones
        lengths = np.arange(1, RUN_BINS)
        assert runs[:-1] == pytest.approx(stats.geom.pmf(lengths, 1 - p), abs=1e-12)
        assert runs[-1] == pytest.approx(stats.geom.sf(RUN_BINS - 1, 1 - p), abs=1e-12)


@pytest.mark.parametrize(("zero_share", "expected"), [(0.116, 0.884), (0.336, 0.664)])
def test_what_chance_predicts_of_the_thesis_runs(zero_share: float, expected: float) -> None:
    assert geometric_runs(zero_share)[0] == pytest.approx(expected)


@pytest.mark.parametrize("p", [0.116, 0.336, 0.9])
def test_independent_zeros_follow_the_geometric_law(p: float) -> None:
    codes = (np.random.default_rng(0).random((200, 4096)) >= p).astype(np.uint8)
    blocks = reference.store_q8_0(np.ones(codes.size // 32, np.float16), codes.reshape(-1, 32).view(np.int8))
    _, runs = _core.count(blocks, 4096, False, 0)
    expected = geometric_runs(p) * runs.sum()
    enough = expected > 50
    deviation = (runs - expected)[enough] / np.sqrt(expected[enough])
    assert np.abs(deviation).max() < 5  # rows that end cut a few runs short


def test_errors() -> None:
    assert rmse(8.0, 2) == 2
    assert snr_db(100.0, 1.0) == pytest.approx(20)
    assert snr_db(0.0, 1.0) is None
    assert snr_db(1.0, 0.0) is None
    assert math.isclose(snr_db(1.0, 2.0), -3.0103, rel_tol=1e-4)


@pytest.mark.parametrize(
    ("x", "y"),
    [([1, 0], [1, 0]), ([1, 0], [0, 2]), ([1, 1], [-3, -3]), ([3, 4], [4, 3]), ([1, 1e-9], [1, 0])],
)
def test_cosine(x: list[float], y: list[float]) -> None:
    a, b = np.array(x, float), np.array(y, float)
    expected = a @ b / np.sqrt((a @ a) * (b @ b))
    assert cosine(a @ a, b @ b, (a - b) @ (a - b)) == pytest.approx(expected, abs=1e-15)


def test_cosine_with_nothing() -> None:
    assert cosine(0, 1, 1) is None
    assert cosine(1, 0, 1) is None


@pytest.mark.parametrize("scale", [1e4, 1e8, 1e19])
def test_cosine_is_told_or_unknown(scale: float) -> None:
    x = np.random.default_rng(0).normal(size=1000)
    for y in (x * scale, x / scale):
        found = cosine(x @ x, y @ y, (x - y) @ (x - y))
        assert found == (pytest.approx(1, abs=1e-6) if scale < 1e5 else None)
