"""What types of any number of bits would save: bounds of what types at hand can."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyquant.fit.allocate import Item, allocate
from pyquant.fit.any_bits import cost_with_any_bits


def item(*options: tuple[int, float]) -> Item:
    return Item(
        np.array([n for n, _ in options], np.int64), np.array([cost for _, cost in options], np.float64)
    )


def test_two_tensors_by_hand() -> None:
    # Each byte halves a cost, so costs are equal at the best: of 8 bytes 5 and 3, as 4 / 2^5 = 1 / 2^3.
    both = [item((0, 4.0), (10, 4 / 2**10)), item((0, 1.0), (10, 1 / 2**10))]
    assert cost_with_any_bits(both, 8) == pytest.approx(2 / 8)
    # With 20 bytes and more, everything is bought, and nothing beyond it.
    assert cost_with_any_bits(both, 20) == cost_with_any_bits(both, 100) == pytest.approx(5 / 2**10)
    # Where even the smallest take more, they are what is left.
    assert cost_with_any_bits(both, -5) == pytest.approx(5)


def test_options_above_the_hull_and_free_ones_count_for_nothing() -> None:
    least = [item((0, 4.0), (10, 4 / 2**10))]
    above = [item((0, 4.0), (2, 5.0), (5, 3.0), (10, 4 / 2**10), (12, 0.0))]
    assert (
        cost_with_any_bits(above, 7) == pytest.approx(cost_with_any_bits(least, 7)) == pytest.approx(4 / 2**7)
    )
    assert cost_with_any_bits([item((7, 0.0)), *least], 14) == pytest.approx(4 / 2**7)
    assert cost_with_any_bits([item((7, 0.0))], 14) == 0


options = st.lists(st.tuples(st.integers(1, 50), st.floats(1e-6, 1e3)), min_size=1, max_size=5)


@given(st.lists(options, min_size=1, max_size=5), st.integers(0, 250))
def test_no_choice_of_types_costs_less(tensors: list[list[tuple[int, float]]], budget: int) -> None:
    items = [item(*each) for each in tensors]
    found = allocate(items, budget)
    if found is not None:
        assert cost_with_any_bits(items, budget) <= found.cost * (1 + 1e-9)


def test_a_finer_choice_of_types_comes_near() -> None:
    falls = (0.1, 0.3, 0.7)
    coarse = [item(*((n, math.exp(-k * n)) for n in (0, 20, 40))) for k in falls]
    fine = [item(*((n, math.exp(-k * n)) for n in range(41))) for k in falls]
    found = allocate(fine, 50)
    assert found is not None
    assert cost_with_any_bits(coarse, 50) == pytest.approx(found.cost, rel=0.02)
    assert cost_with_any_bits(coarse, 50) <= found.cost
