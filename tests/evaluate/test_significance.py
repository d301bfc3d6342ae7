from __future__ import annotations

import pytest
from scipy import stats

from pyquant.evaluate.significance import mcnemar, wilson


def test_wilsons_interval_is_scipys() -> None:
    for n_hits, n in [(0, 10), (3, 10), (50, 100), (100, 100)]:
        expected = stats.binomtest(n_hits, n).proportion_ci(method="wilson")
        assert wilson(n_hits, n) == pytest.approx((expected.low, expected.high), abs=1e-6)
    assert wilson(0, 0) == (0, 1)
    for n in range(1, 120):
        assert wilson(0, n)[0] == 0
        assert wilson(n, n)[1] == 1
        for hits in range(n + 1):
            low, high = wilson(hits, n)
            assert 0 <= low <= hits / n <= high <= 1


def test_mcnemars_test_is_the_binomial_one() -> None:
    for first, second in [(0, 5), (3, 9), (7, 7), (1, 0)]:
        assert mcnemar(first, second) == pytest.approx(stats.binomtest(first, first + second).pvalue)
    assert mcnemar(0, 0) == 1
