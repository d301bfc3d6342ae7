"""How much better a mixture would be if there were types of any number of bits: what the types at hand cost.

Between two types of a tensor, the logarithm of its cost is taken to fall in a straight line with its bytes,
as error falls by about a factor of 4 with each bit. Only a tensor's lower hull counts then. A byte saves less
than the one before it, so costs are least where the last byte of each tensor saves as much as that of all
others: at one price. Tensors get no fewer bytes than in their smallest type, and no more than in the largest
that costs anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyquant.fit.allocate import Item

HALVED = 100  # times that the interval that holds the price's logarithm is


@dataclass(frozen=True)
class _Hull:
    """Options of a tensor that no mean of others is below: bytes rising, logarithms of costs falling."""

    n_bytes: NDArray[np.float64]
    logs: NDArray[np.float64]

    @classmethod
    def of(cls, item: Item) -> _Hull:
        kept: list[tuple[float, float]] = []
        for n_bytes, cost in sorted(zip(item.n_bytes.tolist(), item.costs.tolist())):
            if cost <= 0:
                continue
            point = float(n_bytes), math.log(cost)
            if kept and point[1] >= kept[-1][1]:
                continue
            while len(kept) > 1 and _slope(kept[-2], point) <= _slope(kept[-2], kept[-1]):
                kept.pop()
            kept.append(point)
        return cls(*np.array(kept).reshape(-1, 2).T)

    def bytes_at(self, price: float) -> float:
        """Return how many bytes save at least so much each; price: its logarithm."""
        at = float(self.n_bytes[0])
        for i in range(len(self.logs) - 1):
            falls = (self.logs[i] - self.logs[i + 1]) / (self.n_bytes[i + 1] - self.n_bytes[i])
            wanted = price - math.log(falls)  # the logarithm of the cost at which a byte saves that much
            if wanted >= self.logs[i]:
                return at
            at = float(self.n_bytes[i] + (self.logs[i] - max(wanted, self.logs[i + 1])) / falls)
        return at

    def cost_at(self, n_bytes: float) -> float:
        return math.exp(np.interp(n_bytes, self.n_bytes, self.logs))


def _slope(a: tuple[float, float], b: tuple[float, float]) -> float:
    return (b[1] - a[1]) / (b[0] - a[0])


def cost_with_any_bits(items: list[Item], budget: int) -> float:
    """Return the least sum of costs within a budget, between types too.

    items: options of each tensor. Those that cost nothing, such as its own type, are left out.
    budget: bytes that all tensors take together, at most.
    Returns: in the unit of the items' costs. Where even the smallest options take more bytes, the sum of
    their costs.
    """
    hulls = [hull for hull in map(_Hull.of, items) if len(hull.logs)]
    left = budget - sum(int(item.n_bytes.min()) for item in items if not (item.costs > 0).any())
    low, high = -1000.0, 1000.0  # logarithms of a price at which all is bought, and nothing
    for _ in range(HALVED):
        price = (low + high) / 2
        if sum(hull.bytes_at(price) for hull in hulls) > left:
            low = price
        else:
            high = price
    return sum(hull.cost_at(hull.bytes_at(high)) for hull in hulls)
