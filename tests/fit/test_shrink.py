"""Measurements drawn towards their neighbors."""

from __future__ import annotations

import numpy as np

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
