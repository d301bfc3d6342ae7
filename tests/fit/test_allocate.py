"""Choosing options within a budget: against all choices tried one by one."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyquant.fit.allocate import Item, allocate


def best_of_all(items: list[Item], budget: int) -> float | None:
    """The least cost within the budget, by trying everything."""
    fitting = [
        sum(item.costs[option] for item, option in zip(items, choice))
        for choice in itertools.product(*(range(len(item.costs)) for item in items))
        if sum(item.n_bytes[option] for item, option in zip(items, choice)) <= budget
    ]
    return min(fitting) if fitting else None


@st.composite
def some_items(draw) -> list[Item]:
    options = st.lists(
        st.tuples(st.integers(1, 60), st.floats(0, 1e6, allow_subnormal=False)), min_size=1, max_size=4
    )
    drawn = draw(st.lists(options, min_size=1, max_size=5))
    return [
        Item(np.array([n for n, _ in item], np.int64), np.array([cost for _, cost in item])) for item in drawn
    ]


@pytest.mark.ci
@given(some_items(), st.integers(0, 320))
@settings(max_examples=400, deadline=None)
def test_no_choice_within_the_budget_costs_less(items: list[Item], budget: int) -> None:
    best, found = best_of_all(items, budget), allocate(items, budget)
    if best is None:
        assert found is None
        return
    assert found is not None
    assert found.n_bytes == sum(item.n_bytes[i] for item, i in zip(items, found.chosen)) <= budget
    assert found.exact
    assert found.cost == pytest.approx(best, rel=1e-9, abs=1e-300)
    assert found.bound <= found.cost * (1 + 1e-9) + 1e-300


@pytest.mark.parametrize("most", [1, 2])
def test_what_is_not_tried_is_said(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the choice fits all the same, and the bound holds."""
    monkeypatch.setattr("pyquant.fit.allocate.MOST_STATES", most)
    inexact = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        items = [Item(rng.integers(1, 60, 4), rng.uniform(0, 100, 4)) for _ in range(5)]
        budget = int(rng.integers(60, 200))
        best, found = best_of_all(items, budget), allocate(items, budget)
        if best is None or found is None:
            assert best is found
            continue
        assert found.n_bytes == sum(item.n_bytes[i] for item, i in zip(items, found.chosen)) <= budget
        assert found.bound <= best * (1 + 1e-9)
        assert found.cost >= best * (1 - 1e-9)
        if found.exact:
            assert found.cost == pytest.approx(best)
        inexact += not found.exact
    assert inexact


def test_a_model_of_many_tensors_is_solved_quickly() -> None:
    """Errors fall by 4 for each bit, sizes are those of types: no two tensors are alike."""
    rng = np.random.default_rng(1)
    bits = np.array([2.625, 3.4375, 4.25, 4.5, 5.0, 5.5, 6.0, 6.5625, 8.5])
    items = []
    for _ in range(200):
        n_weights = int(rng.choice([110592, 331776, 884736]))
        costs = rng.lognormal(0, 2) * 4.0**-bits * rng.uniform(0.8, 1.25, len(bits))
        items.append(Item((n_weights * bits / 8).astype(np.int64), costs))
    budget = int(sum(item.n_bytes[3] for item in items)) + 12345
    begin = time.perf_counter()
    found = allocate(items, budget)
    assert time.perf_counter() - begin < 30
    assert found is not None
    assert found.exact
    assert found.n_bytes <= budget
    assert (found.cost - found.bound) / found.bound < 1e-3
