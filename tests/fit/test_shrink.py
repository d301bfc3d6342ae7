"""Measurements drawn towards their neighbors."""

from __future__ import annotations

import numpy as np
import pytest

from pyquant.fit.shrink import shrink

LAYERS = np.arange(40, dtype=np.float64)


def test_what_is_certain_stays() -> None:
    values = np.random.default_rng(0).normal(size=40)
    np.testing.assert_array_equal(shrink(values, np.zeros(40), LAYERS), values)


def test_noise_alone_is_smoothed_away() -> None:
    values = 3 + np.random.default_rng(0).normal(size=40)
    drawn = shrink(values, np.ones(40), LAYERS)
    assert drawn.std() < 0.6 * values.std()
    assert abs(drawn.mean() - 3) < 0.5


def test_errors_get_smaller_where_neighbors_are_alike() -> None:
    rng = np.random.default_rng(1)
    truth = np.sin(LAYERS / 5) + 0.1 * rng.normal(size=40)
    values = truth + 0.5 * rng.normal(size=40)
    drawn = shrink(values, np.full(40, 0.25), LAYERS)
    assert np.square(drawn - truth).mean() < 0.5 * np.square(values - truth).mean()


def test_an_uncertain_value_gives_way_and_a_certain_one_does_not() -> None:
    values, variances = np.zeros(9), np.full(9, 1e-6)
    values[4] = 1
    assert shrink(values, variances, LAYERS[:9])[4] > 0.99
    variances[4] = 100
    assert shrink(values, variances, LAYERS[:9])[4] < 0.1


def test_two_have_too_few_neighbors() -> None:
    np.testing.assert_array_equal(shrink(np.array([0.0, 5]), np.ones(2), LAYERS[:2]), [0, 5])


def test_three_by_hand() -> None:
    """Neighbors at REACH and at twice that weigh exp(-1/2) and exp(-2), over their sum."""
    values, variances = np.array([1.0, -4.0, 6.0]), np.array([1.0, 2.0, 0.5])
    near, far = np.exp(-0.5) / (np.exp(-0.5) + np.exp(-2)), np.exp(-2) / (np.exp(-0.5) + np.exp(-2))
    around = [near * -4 + far * 6, 0.5 * 1 + 0.5 * 6, near * -4 + far * 1]
    of_around = [near**2 * 2 + far**2 * 0.5, 0.25 * 1 + 0.25 * 0.5, near**2 * 2 + far**2 * 1]
    apart = [(values[i] - around[i]) ** 2 - variances[i] - of_around[i] for i in range(3)]
    differing = sum(apart) / (2 * (1 + near**2 + far**2) + 1.5)
    trust = [differing + each for each in of_around]
    expected = [
        (values[i] * trust[i] + around[i] * variances[i]) / (trust[i] + variances[i]) for i in range(3)
    ]
    np.testing.assert_allclose(shrink(values, variances, LAYERS[:6:2]), expected, rtol=1e-12)


def test_neighbors_that_differ_less_than_their_errors_say_differ_by_nothing() -> None:
    values = np.array([0.0, 0.1, 0.0])
    drawn = shrink(values, np.ones(3), LAYERS[:3])
    of_around = np.exp(-0.125) / (np.exp(-0.125) + np.exp(-0.5))
    of_around = of_around**2 + (1 - of_around) ** 2
    around = np.exp(-0.125) / (np.exp(-0.125) + np.exp(-0.5)) * 0.1
    assert drawn[0] == pytest.approx(around / (1 + of_around))


def test_a_layer_far_from_all_others_stays() -> None:
    places = np.array([0.0, 1, 2, 90])
    values, variances = np.array([1.0, 2, 4, -7]), np.full(4, 0.1)
    with np.errstate(all="raise", under="ignore"):
        drawn = shrink(values, variances, places)
    assert drawn[3] == -7
    np.testing.assert_array_equal(drawn[:3], shrink(values[:3], variances[:3], places[:3]))
