"""Search for points of a grid, which passes by most of them, beside all points."""

from __future__ import annotations

import numpy as np
import pytest

from pyquant.models.tensor_type import TensorType as Type
from tests.twins.formats import FORMATS
from tests.twins.formats.grid_format import GridFormat

GRIDS = {kind: form.levels for kind, form in FORMATS.items() if isinstance(form, GridFormat)}


def least(points: np.ndarray, x: np.ndarray, d: np.ndarray, parity: int | None) -> float:
    """Sum of d (x - level)^2 of the best point, with so many minuses, modulo 2, as parity says."""
    size = np.abs(x)
    costs = (d * np.square(size - points)).sum(axis=1)
    if parity is not None and (x < 0).sum() % 2 != parity:
        costs = costs + (4 * d * size * points).min(axis=1)  # of the cheapest sign to be wrong
    return float(costs.min())


@pytest.mark.parametrize("kind", GRIDS, ids=lambda kind: kind.name)
def test_no_point_is_nearer(kind: Type) -> None:
    grid, rng, n_rows = GRIDS[kind], np.random.default_rng(0), 100
    points = grid.points.astype(np.float64)
    x = (rng.laplace(size=(grid.group, n_rows)) * points.mean()).astype(np.float32)
    d, one = rng.exponential(size=grid.group).astype(np.float32), np.ones(n_rows, np.float32)
    unrelated = np.zeros((grid.group, grid.group), np.float32)
    with np.errstate(invalid="ignore"):  # infinite costs of a parity that there is not yet
        found = grid.round(x, x, d, unrelated, one, grid.start(grid.group, n_rows))
    magnitudes = np.abs(found).T.reshape(-1, grid.point)
    assert {tuple(point) for point in magnitudes} <= {tuple(point) for point in points}
    if grid.even:
        assert ((found < 0).sum(axis=0) % 2 == 0).all()
    parts = [slice(at, at + grid.point) for at in range(0, grid.group, grid.point)]
    for row in range(n_rows):
        best = min(
            sum(least(points, x[part, row], d[part], parity) for part in parts)
            for parity in ((0, 1) if len(parts) > 1 else (0,) if grid.even else (None,))
        )
        cost = (d * np.square(x[:, row] - found[:, row]).astype(np.float64)).sum()
        assert cost == pytest.approx(best, rel=1e-5)
