"""Numpy twin of csrc/gptq/grid.h: codes that stand for the levels of several columns at once, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.twins.scale_search import LARGEST, Bytes, Floats, TableLevels, fma


@dataclass
class _Best:
    """The best points found, of either parity of minuses.

    cost: (n_rows,) float32. level: (n_columns, n_rows) float32.
    """

    cost: Floats
    level: Floats


class Grid:
    """Points of a list, which have the magnitudes of several columns' levels; signs are free, or even.

    Parameters
    ----------
    points : (n_points, n_columns) uint8
        In the order of their numbers.
    even : bool
        Whether each 8 columns have an even number of minuses.
    """

    def __init__(self, points: Bytes, even: bool) -> None:
        self.even, self.point, self.points = even, points.shape[1], points
        self.group = 8 if even else self.point
        self._number = {tuple(point): number for number, point in enumerate(points.tolist())}
        self._sorted = np.array(sorted(self._number), np.float32)
        magnitudes = np.unique(self._sorted)
        values = np.concatenate([-magnitudes[::-1], magnitudes]).astype(np.int8)
        self.of_one = TableLevels(values, np.zeros(len(values), np.uint8))
        # A tree: points with the same magnitudes up to a column are one node.
        starts = (np.diff(self._sorted, axis=0, prepend=-1) != 0).cumsum(axis=1) > 0
        self._first = [np.flatnonzero(starts[:, k]) for k in range(self.point)]
        self._parent = [starts[:, max(k - 1, 0)].cumsum()[first] - 1 for k, first in enumerate(self._first)]
        self._parent[0][:] = 0

    def start(self, n: int, n_rows: int) -> Floats:
        """Give any levels of n columns; float32 (n, n_rows)."""
        return np.repeat(np.resize(self._sorted[0], n)[:, None], n_rows, axis=1)

    def code(self, level: Floats) -> NDArray[np.uint8]:
        """Give levels as bytes with a sign, in uint8 of the same shape."""
        return level.astype(np.int8).view(np.uint8)

    def numbers(self, magnitudes: Bytes) -> NDArray[np.uint16]:
        """Find the numbers of points; magnitudes (n * n_columns, n_rows), numbers (n, n_rows)."""
        points = magnitudes.reshape(-1, self.point, magnitudes.shape[1]).transpose(0, 2, 1)
        found = [self._number[tuple(point)] for point in points.reshape(-1, self.point).tolist()]
        return np.array(found, np.uint16).reshape(points.shape[:2])

    def round(
        self, aim: Floats, weight: Floats, d: Floats, u: Floats, scale: Floats, level: Floats
    ) -> Floats:
        """Find the levels of a group of columns that cost least, or keep those there are.

        Parameters
        ----------
        aim, weight : (group, n_rows) float32
            What levels aim at, and what their errors are counted from.
        d : (group,) float32
            Weights of squared errors.
        u : (group, group) float32
            How an error moves later aims.
        scale : (n_rows,) float32
            A level's unit.
        level : (group, n_rows) float32
            Levels so far.

        Returns
        -------
        (group, n_rows) float32
            The levels.
        """
        best = _Best(_cost(aim, weight, d, u, scale, level), level.copy())
        n, free = self.point, np.zeros_like(scale)
        if self.group == n:
            self._search(aim, weight, d, u, scale, free, 0, [best])
            return best.level
        halves = [_Best(best.cost.copy(), np.zeros_like(level[:n])) for _ in range(2)]
        self._search(aim[:n], weight[:n], d[:n], u[:n, :n], scale, free, 0, halves)
        for parity, half in enumerate(halves):
            rest = aim[n:].copy()
            for k in range(n):
                rest = fma(u[k, n:, None], weight[k] - scale * half.level[k], rest)
            other = _Best(best.cost.copy(), best.level[n:])
            self._search(rest, weight[n:], d[n:], u[n:, n:], scale, half.cost, parity, [other])
            first = np.where(other.cost < best.cost, half.level, best.level[:n])
            best = _Best(other.cost, np.concatenate([first, other.level]))
        return best.level

    def _search(
        self, aims: Floats, weight: Floats, d: Floats, u: Floats, scale: Floats,
        cost_so_far: Floats, parity: int, best: list[_Best],
    ) -> None:  # fmt: skip
        """Improve on what is best, of an even number of minuses and, if it is wanted, of an odd one.

        Nodes that no row's best may lie below are left out, which changes nothing.
        """
        n_states = 2 if self.even else 1
        nodes = np.zeros(1, np.int64)
        cost = [(cost_so_far if state == parity else np.full_like(cost_so_far, np.inf))[None]
                for state in range(n_states)]  # fmt: skip
        aim = [aims[None] for _ in range(n_states)]
        minuses = [np.zeros(cost[0].shape, np.int64) for _ in range(n_states)]
        for k in range(self.point):
            place = np.full(len(self._first[max(k - 1, 0)]), -1)
            place[nodes] = np.arange(len(nodes))
            parent = place[self._parent[k]]
            nodes = np.flatnonzero(parent >= 0)
            parent = parent[nodes]
            size = scale * self._sorted[self._first[k][nodes], k][:, None]
            totals, negatives = [], []
            for state in range(n_states):
                ours, theirs = (aim[of][parent, 0] for of in (state, n_states - 1 - state))
                plus, minus = ours - size, theirs + size
                plus = fma(d[k] * plus, plus, cost[state][parent])
                minus = fma(d[k] * minus, minus, cost[n_states - 1 - state][parent])
                negatives.append(minus < plus if self.even else ours < 0)
                totals.append(np.where(negatives[state], minus, plus))
            alive = np.any([(total < one.cost).any(axis=1) for total in totals for one in best], axis=0)
            nodes, parent, size = nodes[alive], parent[alive], size[alive]
            cost, negatives = ([one[alive] for one in ones] for ones in (totals, negatives))
            bits, moved = [], []
            for state, negative in enumerate(negatives):
                of = n_states - 1 - state
                bits.append(np.where(negative, minuses[of][parent] | 1 << k, minuses[state][parent]))
                error = weight[k] - np.where(negative, -size, size)
                before = np.where(negative[:, None], aim[of][parent, 1:], aim[state][parent, 1:])
                moved.append(fma(u[k, k + 1 :, None], error[:, None], before))
            minuses, aim = bits, moved
        rows = np.arange(len(scale))
        for state, one in enumerate(best):
            if len(nodes):
                total = np.where(np.isnan(cost[state]), LARGEST, cost[state])
                at = total.argmin(axis=0)
                better = total[at, rows] < one.cost
                signs = np.where(minuses[state][at, rows] >> np.arange(self.point)[:, None] & 1, -1, 1)
                found = self._sorted[nodes[at]].T * signs.astype(np.float32)
                one.cost = np.where(better, total[at, rows], one.cost)
                one.level = np.where(better, found, one.level)

    def descend(self, h: Floats, scale: Floats, gradient: Floats, level: Floats) -> tuple[Floats, Floats]:
        """Move the levels of a group to where e H e^T is least with the rest as it is.

        Parameters
        ----------
        h : (n, n) float32
            H of these columns and those that follow.
        scale : (n_rows,) float32
            A level's unit.
        gradient : (n, n_rows) float32
            e H.
        level : (group, n_rows) float32
            Levels so far.

        Returns
        -------
        level : (group, n_rows) float32
            The new levels.
        gradient : (n - group, n_rows) float32
            That of the columns that follow.
        """
        n = self.group
        u, d = _factors(h[:n, :n])
        x, value = gradient[:n].copy(), scale * level
        for k in reversed(range(n)):
            for m in range(k + 1, n):
                x[k] = fma(-u[k, m], x[m], x[k])
        for k in range(n):
            x[k] = x[k] * (np.float32(1) / d[k])
        for k in range(n):
            for j in range(k):
                x[k] = fma(-u[j, k], x[j], x[k])
        level = self.round(value + x, value + x, d, u, scale, level)
        later = gradient[n:]
        for k in range(n):
            later = fma(h[k, n:][:, None], value[k] - scale * level[k], later)
        return level, later


def _factors(h: Floats) -> tuple[Floats, Floats]:
    """Decompose H = U D U^T in float64; U above its diagonal (n, n) and D (n,), float32."""
    n = len(h)
    u, d = np.zeros((n, n)), np.zeros(n)
    for k in reversed(range(n)):
        for j in range(k + 1):
            left = np.float64(h[j, k])
            for m in range(k + 1, n):
                left -= u[j, m] * u[k, m] * d[m]
            if j == k:
                d[k] = left
            else:
                u[j, k] = left
        u[:k, k] /= d[k]
    return u.astype(np.float32), d.astype(np.float32)


def _cost(aim: Floats, weight: Floats, d: Floats, u: Floats, scale: Floats, level: Floats) -> Floats:
    aim, cost = aim.copy(), np.zeros_like(scale)
    for k in range(len(aim)):
        value = scale * level[k]
        missed = aim[k] - value
        cost = fma(d[k] * missed, missed, cost)
        aim[k + 1 :] = fma(u[k, k + 1 :, None], weight[k] - value, aim[k + 1 :])
    return cost
