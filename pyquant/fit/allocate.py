"""Choose one option for each of many items, at the least cost within a budget of bytes.

It is the knapsack problem with multiple choice (Kellerer, Pferschy and Pisinger, *Knapsack Problems*, 2004,
chapter 11). A price per byte is found first, at which every item's best option is known by itself (the
Lagrangian, or the convex hull of all options). What bytes are left then are filled greedily. Between the
bound that the price gives and what the filling reached lies a gap. Options and combinations that would cost
more than the gap cannot be in a better solution. The few others are all tried.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_STATES = 300_000  # combinations that are kept at a time; more of them are only had where items are alike
ROUNDS = 100  # in which the interval that holds the price is halved
SLACK = 1e-12  # relative error of sums


@dataclass(frozen=True)
class Item:
    """Choices for one item."""

    n_bytes: NDArray[np.int64]  # (n,)
    costs: NDArray[np.float64]  # (n,)


@dataclass(frozen=True)
class Allocation:
    """Choice for every item."""

    chosen: list[int]  # the index of each item's option
    n_bytes: int  # sums over items
    cost: float
    bound: float  # no choice within the budget costs less
    exact: bool  # whether no choice within the budget costs less than `cost`


def allocate(items: list[Item], budget: int) -> Allocation | None:
    """Choose.

    items: with at least one option each.
    budget: bytes that all choices take together, at most.
    Returns None where even the smallest options take more.
    """
    if sum(int(item.n_bytes.min()) for item in items) > budget:
        return None
    price, chosen = _price(items, budget)
    chosen = _filled(items, chosen, budget)
    relaxed = [item.costs + price * item.n_bytes for item in items]
    bound = sum(float(values.min()) for values in relaxed) - price * budget
    return _best(items, relaxed, budget, price, bound, chosen)


def _price(items: list[Item], budget: int) -> tuple[float, list[int]]:
    """Find the least price per byte at which the items' best options fit, and these."""

    def best(price: float) -> list[int]:
        # The smallest of equal ones is taken, so that a high price chooses the fewest bytes.
        return [int(np.lexsort((item.n_bytes, item.costs + price * item.n_bytes))[0]) for item in items]

    if _bytes(items, best(0.0)) <= budget:
        return 0.0, best(0.0)
    low, high = 0.0, 1e-30
    while _bytes(items, best(high)) > budget:
        low, high = high, 16 * high
    for _ in range(ROUNDS):
        middle = (low + high) / 2 if low == 0 or high < 4 * low else float(np.sqrt(low * high))
        if _bytes(items, best(middle)) > budget:
            low = middle
        else:
            high = middle
    return high, best(high)


def _filled(items: list[Item], chosen: list[int], budget: int) -> list[int]:
    """Spend what is left, each time on what saves most per byte."""
    chosen, left = list(chosen), budget - _bytes(items, chosen)
    while True:
        best: tuple[float, int, int] | None = None
        for i, (item, at) in enumerate(zip(items, chosen)):
            more, saved = item.n_bytes - item.n_bytes[at], item.costs[at] - item.costs
            for option in np.flatnonzero((saved > 0) & (more <= left)).tolist():
                gain = float(saved[option]) / max(float(more[option]), 1e-9)
                if best is None or gain > best[0]:
                    best = gain, i, option
        if best is None:
            return chosen
        _, i, option = best
        left -= int(items[i].n_bytes[option] - items[i].n_bytes[chosen[i]])
        chosen[i] = option


def _best(
    items: list[Item],
    relaxed: list[NDArray[np.float64]],
    budget: int,
    price: float,
    bound: float,
    incumbent: list[int],
) -> Allocation:
    """Try all combinations that could cost less than the incumbent, or keep it."""
    cost = _cost(items, incumbent)
    gap = (cost - bound) * (1 + 1e-9) + SLACK * sum(float(np.abs(values).max()) for values in relaxed)
    above = [values - values.min() for values in relaxed]  # what an option costs above the bound
    open_ = [np.flatnonzero(values <= gap) for values in above]
    # Items with many bytes first: what is left of the budget is known sooner.
    order = sorted(range(len(items)), key=lambda i: -int(np.ptp(items[i].n_bytes[open_[i]])))
    least = np.array([items[i].n_bytes[open_[i]].min() for i in order], np.int64)
    most = np.array([items[i].n_bytes[open_[i]].max() for i in order], np.int64)
    least_after = np.append(np.cumsum(least[::-1])[::-1], 0)
    most_after = np.append(np.cumsum(most[::-1])[::-1], 0)
    taken, excess = np.zeros(1, np.int64), np.zeros(1)
    steps: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []  # states that states come from, and options
    exact = True
    for place, i in enumerate(order):
        options = open_[i]
        bytes_ = (taken[:, None] + items[i].n_bytes[options]).ravel()
        above_ = (excess[:, None] + above[i][options]).ravel()
        # Bytes that must stay unspent cost their price as well.
        unspent = np.maximum(budget - bytes_ - most_after[place + 1], 0) * price
        keep = np.flatnonzero((bytes_ + least_after[place + 1] <= budget) & (above_ + unspent <= gap))
        keep = keep[np.lexsort((above_[keep], bytes_[keep]))]
        keep = keep[_pareto(above_[keep] - price * bytes_[keep])]
        if len(keep) > MOST_STATES:
            exact = False
            keep = np.sort(keep[np.argsort(above_[keep], kind="stable")[:MOST_STATES]])
            keep = keep[np.argsort(bytes_[keep], kind="stable")]
        steps.append((keep // len(options), options[keep % len(options)]))
        taken, excess = bytes_[keep], above_[keep]
    chosen = list(incumbent)
    if len(taken):
        state = int(np.argmin(excess - price * taken))
        for i, (parents, options) in zip(reversed(order), reversed(steps)):
            chosen[i] = int(options[state])
            state = int(parents[state])
        if _cost(items, chosen) > cost:
            chosen = list(incumbent)
    return Allocation(chosen, _bytes(items, chosen), _cost(items, chosen), bound, exact)


def _pareto(costs: NDArray[np.float64]) -> NDArray[np.int64]:
    """Find which of some states, in order of bytes, cost less than all with no more bytes."""
    if not len(costs):
        return np.empty(0, np.int64)
    before = np.concatenate([[np.inf], np.minimum.accumulate(costs)[:-1]])
    return np.flatnonzero(costs < before)


def _bytes(items: list[Item], chosen: list[int]) -> int:
    return sum(int(item.n_bytes[option]) for item, option in zip(items, chosen))


def _cost(items: list[Item], chosen: list[int]) -> float:
    return sum(float(item.costs[option]) for item, option in zip(items, chosen))
