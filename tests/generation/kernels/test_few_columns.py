"""Products with few columns in the patched GGML: those of the twin and of GGML's own kernels, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pyquant import _core
from pyquant.models.tensor_type import TensorType as Type
from pyquant.schemes.q8_0 import q8_0
from tests.generation.twins.few_columns import multiply_few
from tests.support import ggml
from tests.support.blocks import assert_blocks_equal

TYPES = [Type.F16, Type.BF16, Type.Q8_0]
MANY = 33  # columns: more than the kernel takes
every_type = pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
needs_path = pytest.mark.skipif(
    _core.few_lanes(_core.FewWeights.F16) == 0, reason="this build has no path for few columns"
)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Float32 of many magnitudes, zeros among them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape) * 2.0 ** rng.integers(-6, 5, shape)
    x[rng.random(shape) < 0.05] = 0
    return x.astype(np.float32)


def blocks_of(kind: Type, x: np.ndarray) -> np.ndarray:
    """Rows of float32 as (n_rows, n_blocks, bytes of a block)."""
    blocks: dict[Type, Callable[[], np.ndarray]] = {
        Type.F16: lambda: x.astype(np.float16).view(np.uint8),
        Type.BF16: lambda: (x.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8),
        Type.Q8_0: lambda: _core.encode(q8_0().kernel(), x),
    }
    return np.ascontiguousarray(blocks[kind]()).reshape(len(x), x.shape[1] // 32, -1)


def product(kind: Type, rows: np.ndarray, x: np.ndarray, n_threads: int = 1) -> np.ndarray:
    """(n_columns, n_rows), as GGML computes it."""
    got = ggml.run(ggml.mul_mat, rows, None, x, kind=kind, n_threads=n_threads)
    return got.reshape(len(x), len(rows))


@needs_path
@every_type
@pytest.mark.parametrize(("n_rows", "n_blocks"), [(1, 1), (4, 2), (7, 18), (50, 3)])
def test_the_kernel_equals_its_twin(kind: Type, n_rows: int, n_blocks: int) -> None:
    weights = getattr(_core.FewWeights, kind.name)
    rows = blocks_of(kind, numbers(n_rows, 32 * n_blocks, seed=n_rows))
    for n_columns in range(1, 9):
        x = blocks_of(kind, numbers(n_columns, 32 * n_blocks, seed=100 + n_columns))
        got = _core.multiply_few(weights, rows, x)
        lanes, pairs = _core.few_lanes(weights), _core.few_pairs(weights)
        expected = multiply_few(kind, rows, x, lanes=lanes, pairs=pairs)
        assert_blocks_equal(got.view(np.uint8), expected.view(np.uint8), 4)


@needs_path
def test_codes_of_every_value_and_sign_are_multiplied() -> None:
    weights = np.array([[-128, -127, -1, 0, 1, 126, 127, -64] * 4, [-128] * 32, [127] * 32], np.int8)
    x = np.maximum(weights, -127)  # GGML rounds a column to codes from -127 to 127
    scale = np.ones((len(x), 1), np.float16).view(np.int8)
    rows, columns = (np.concatenate([scale, codes], axis=1).view(np.uint8)[:, None] for codes in (weights, x))
    got = _core.multiply_few(_core.FewWeights.Q8_0, rows, columns)
    assert np.array_equal(got, x.astype(np.int64) @ weights.T.astype(np.int64))


@every_type
@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("n_rows", "n_blocks"), [(4, 1), (48, 2), (52, 18), (1000, 3), pytest.param(7, 4, id="rows of no tile")]
)
def test_a_column_is_the_same_among_few_and_among_many(
    kind: Type, n_threads: int, n_rows: int, n_blocks: int
) -> None:
    rows, x = blocks_of(kind, numbers(n_rows, 32 * n_blocks)), numbers(MANY, 32 * n_blocks, seed=1)
    expected = product(kind, rows, x)
    for n_columns in range(2, MANY):
        got = product(kind, rows, x[:n_columns], n_threads)
        assert_blocks_equal(got.view(np.uint8), expected[:n_columns].view(np.uint8), 4)


@every_type
def test_one_column_is_close_to_them(kind: Type) -> None:
    rows, x = blocks_of(kind, numbers(64, 576)), numbers(MANY, 576, seed=1)
    alone, among = product(kind, rows, x[:1])[0], product(kind, rows, x)[0]
    np.testing.assert_allclose(alone, among, rtol=1e-5, atol=1e-5 * np.abs(among).max())


@every_type
def test_stacks_of_matrices_are_left_to_ggml(kind: Type) -> None:
    rows = blocks_of(kind, numbers(2 * 8, 64)).reshape(2, 8, 2, -1)
    x = numbers(4, 64, seed=2).reshape(1, 4, 64).repeat(2, axis=0)
    got = ggml.run(ggml.mul_mat, rows, None, x, kind=kind, n_threads=2).reshape(2, 4, 8)
    for plane in range(2):
        assert np.array_equal(got[plane], product(kind, rows[plane], x[plane]))


@every_type
@pytest.mark.parametrize("n_tokens", [2, 8])
def test_products_with_experts_are_left_to_ggml(kind: Type, n_tokens: int) -> None:
    rows, x = blocks_of(kind, numbers(3 * 8, 64)).reshape(3, 8, 2, -1), numbers(n_tokens, 64, seed=2)
    ids = (np.arange(n_tokens, dtype=np.int32) % 3).reshape(n_tokens, 1)
    got = ggml.run(ggml.mul_mat_id, rows, None, x.reshape(n_tokens, 1, 64), ids, kind=kind).reshape(
        n_tokens, 8
    )
    for token in range(n_tokens):
        alone = product(kind, rows[token % 3], x[token : token + 1])[0]
        np.testing.assert_allclose(got[token], alone, rtol=1e-5, atol=1e-5 * np.abs(alone).max())


@needs_path
def test_arrays_that_do_not_fit_are_refused() -> None:
    if _core.few_lanes(_core.FewWeights.F16) == 0:
        with pytest.raises(ValueError, match="no path"):
            _core.multiply_few(
                _core.FewWeights.F16, np.zeros((4, 1, 64), np.uint8), np.zeros((1, 1, 64), np.uint8)
            )
        return
    rows = np.zeros((4, 2, 64), np.uint8)
    for x in (np.zeros((9, 2, 64), np.uint8), np.zeros((0, 2, 64), np.uint8), np.zeros((1, 1, 64), np.uint8)):
        with pytest.raises(ValueError, match="x: expected"):
            _core.multiply_few(_core.FewWeights.F16, rows, x)
