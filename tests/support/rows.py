"""Rows of weights of every kind, and encoders of them beside what is expected."""

from __future__ import annotations

import numpy as np

from pyquant import _core
from tests.support.blocks import assert_blocks_equal, sample_blocks

N = 512  # columns: two of the blocks that are stored as wholes


def hand_made(n_rows: int = 64) -> np.ndarray:
    """(n_rows, N) float32: rows of every kind in turn."""
    rng = np.random.default_rng(3)
    one = np.zeros(N)
    one[77] = -3e4
    huge = rng.laplace(size=N)
    huge[300] = 4e4
    kinds = [
        lambda: rng.laplace(size=N) / 16,
        lambda: np.zeros(N),
        lambda: one,
        lambda: huge,
        lambda: rng.normal(size=N) * 2.0**-24,  # subnormal scales
        lambda: rng.normal(size=N) * 1e-30,  # scales of 0
        lambda: rng.normal(size=N) * 1e-42,  # their inverse overflows
        lambda: -np.abs(rng.normal(size=N)),
        lambda: np.abs(rng.normal(size=N)) + 5,
        lambda: np.full(N, -0.0),
        lambda: sample_blocks(N // 32, seed=int(rng.integers(2**32))).ravel(),
    ]
    return np.stack([kinds[row % len(kinds)]() for row in range(n_rows)]).astype(np.float32)


def assert_rows_equal(encoder: _core.Encoder, x: np.ndarray, expected: np.ndarray, block_bytes: int) -> None:
    """Compares any number of rows, as rows do not know of each other."""
    for n_rows in (1, 16, 17, 33, len(x)):
        assert_blocks_equal(encoder.encode(x[:n_rows]), expected[:n_rows], block_bytes, f"{n_rows} rows")
