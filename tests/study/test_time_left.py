"""The time left of a study: it follows what the last minutes took."""

from __future__ import annotations

import pytest

from pyquant.study.time_left import TimeLeft


def test_a_steady_study_ends_when_it_is_said_to() -> None:
    left = TimeLeft(100.0)
    assert left.at(0.01, 110.0) is None
    assert left.at(0.25, 350.0) == pytest.approx(750)
    assert left.at(0.75, 850.0) == pytest.approx(250)
    assert left.at(1.0, 1100.0) == 0


def test_what_the_cache_had_is_forgotten() -> None:
    left = TimeLeft(0.0)
    left.at(0.4, 1.0)
    for second in range(10, 1300, 10):
        found = left.at(0.4 + 0.6 * second / 3600, second)
    assert found == pytest.approx(3600 - 1290)


def test_a_long_step_keeps_the_rate_of_the_run() -> None:
    left = TimeLeft(0.0)
    left.at(0.5, 500.0)
    for second in (800, 1000, 1500, 2000):
        found = left.at(0.5, second)
    assert found == pytest.approx(2000)
