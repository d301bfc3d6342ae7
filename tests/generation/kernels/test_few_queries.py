"""Attention of few tokens in the patched GGML: the kernel equals its twin, and is as exact as GGML is."""

from __future__ import annotations

import numpy as np
import pytest

from pyquant import _core
from tests.generation.twins.few_queries import attend_few
from tests.support import ggml
from tests.support.blocks import assert_blocks_equal

SIZES = [64, 96, 128, 256]
MANY = 64  # tokens: GGML computes so many in tiles
needs_path = pytest.mark.skipif(_core.few_queries(64) == 0, reason="this build has no path for few queries")


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) * 2.0 ** rng.integers(-3, 3, shape)).astype(np.float32)


def masks(n: int, n_cells: int, seed: int = 0) -> np.ndarray:
    """Masks of tokens at the end of a text of which some cells are others' and some are empty."""
    hidden = np.random.default_rng(seed).random((n, n_cells)) < 0.2
    hidden[:, -20:] = True
    hidden |= np.arange(n_cells) > n_cells - 24 + np.arange(n)[:, None]
    return np.where(hidden, -np.inf, 0).astype(np.float16)


def exact(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray, scale: float) -> np.ndarray:
    """(n_sequences, n_tokens, n_heads, size) in float64, of queries in float16."""
    shared = q.shape[1] // k.shape[1]
    keys, values = (np.repeat(x.astype(np.float64), shared, axis=1) for x in (k, v))
    scores = scale * q.astype(np.float16).astype(np.float64) @ keys.swapaxes(-1, -2) + mask.astype(np.float64)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (weights @ values / weights.sum(axis=-1, keepdims=True)).swapaxes(1, 2)


@needs_path
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("n_cells", [16, 48, 256])
def test_the_kernel_equals_its_twin(size: int, n_cells: int) -> None:
    keys, values = (numbers(n_cells, size, seed=seed).astype(np.float16) for seed in (1, 2))
    for n in range(1, 10):
        queries, hidden = numbers(n, size, seed=n), masks(n, n_cells, seed=n)
        for mask in (hidden, np.zeros((0, 0), np.float16)):
            got = _core.attend_few(
                queries, keys.view(np.uint16), values.view(np.uint16), mask.view(np.uint16), size**-0.5
            )
            expected = attend_few(
                queries, keys, values, mask if mask.size else None, size**-0.5, lanes=_core.few_query_lanes()
            )
            assert_blocks_equal(got.view(np.uint8), expected.view(np.uint8), 4)


@needs_path
def test_cells_that_no_query_sees_may_hold_anything() -> None:
    keys, values = (numbers(32, 64, seed=seed).astype(np.float16) for seed in (1, 2))
    mask = np.zeros((3, 32), np.float16)
    mask[:, [5, 20]] = -np.inf
    queries = numbers(3, 64)
    bits = [x.view(np.uint16) for x in (keys, values, mask)]
    expected = _core.attend_few(queries, *bits, 0.125)
    keys[[5, 20]] = values[[5, 20]] = np.nan
    assert np.array_equal(_core.attend_few(queries, *bits, 0.125), expected)
    assert np.isfinite(expected).all()
    mask[:] = -np.inf
    assert not _core.attend_few(queries, *bits, 0.125).any()


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize(("n_heads", "n_shared"), [(9, 3), (4, 4), (3, 1)])
@pytest.mark.parametrize("size", [*SIZES, pytest.param(80, id="size of no path")])
def test_few_tokens_are_as_exact_as_many(n_threads: int, n_heads: int, n_shared: int, size: int) -> None:
    n_cells, scale = 128, size**-0.5
    q = numbers(1, n_heads, MANY, size)
    k, v = (numbers(1, n_heads // n_shared, n_cells, size, seed=seed).astype(np.float16) for seed in (1, 2))
    hidden = np.arange(n_cells) > 40 + np.arange(MANY)[:, None]
    mask = np.where(hidden, -np.inf, 0).astype(np.float16)[None, None]
    expected = exact(q, k, v, mask, scale)

    def error(n: int) -> float:
        got = ggml.attend(q[:, :, :n], k, v, mask[:, :, :n], scale, n_threads)
        return float(np.abs(got[:, 0] - expected[:, 0]).max())

    worst = max(error(1), error(MANY))
    assert all(error(n) <= worst for n in (*range(2, 10), 16, 32, 33))


@needs_path
def test_a_token_is_the_same_among_few_and_with_any_number_of_threads() -> None:
    q = numbers(1, 9, 32, 64)
    k, v = (numbers(1, 3, 64, 64, seed=seed).astype(np.float16) for seed in (1, 2))
    mask = masks(32, 64)[None, None]
    expected = ggml.attend(q, k, v, mask, 0.125)
    for n in (*range(2, 9), 15, 31):
        for n_threads in (1, 2, 3):
            got = ggml.attend(q[:, :, :n], k, v, mask[:, :, :n], 0.125, n_threads)
            assert np.array_equal(got, expected[:, :n])


@needs_path
def test_arrays_that_do_not_fit_are_refused() -> None:
    q, cells, none = np.zeros((2, 64), np.float32), np.zeros((16, 64), np.uint16), np.zeros((0, 0), np.uint16)
    with pytest.raises(ValueError, match="multiple of 16"):
        _core.attend_few(q, cells[:15].copy(), cells[:15].copy(), none, 1.0)
    with pytest.raises(ValueError, match="masks: expected"):
        _core.attend_few(q, cells, cells, np.zeros((2, 15), np.uint16), 1.0)
    wide = np.zeros((16, 72), np.uint16)
    with pytest.raises(ValueError, match="no path for heads of size 72"):
        _core.attend_few(np.zeros((2, 72), np.float32), wide, wide, none, 1.0)
