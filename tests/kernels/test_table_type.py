"""Type Q4_T in the patched GGML: every layout, operation, instruction set and number of threads."""

from __future__ import annotations

import numpy as np
import pytest

from pyquant import _core
from pyquant.models.codebook import IQ4_NL_VALUES
from pyquant.models.tensor_type import TensorType as Type
from pyquant.schemes.fold_table import basic
from pyquant.schemes.q4_0 import q4_0
from pyquant.schemes.q8_0 import q8_0
from tests.support import ggml
from tests.support.blocks import assert_blocks_equal, sample_blocks
from tests.twins import kernels as reference

TABLES = {
    "basic": basic().values,
    "Q4_0": q4_0().values,
    "IQ4_NL": IQ4_NL_VALUES,
    "extremes": np.array([-128, 127] * 8, np.int8),
    "one value": np.full(16, -128, np.int8),
}
every_table = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
PATHS = {name: path for name, path in _core.Path.__members__.items() if _core.has_path(path)}
every_path = pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
LAYOUTS = {"plain": None, "interleaved": b"CPU_TABLE"}


def random_blocks(*shape: int, seed: int = 0) -> np.ndarray:
    """(*shape, 18): any codes, scales of both signs, subnormal and zero ones among them."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (*shape, 18), np.uint8)
    scales = rng.normal(size=shape) * 2.0 ** rng.integers(-24, 1, shape)
    scales[rng.random(shape) < 0.05] = 0
    blocks[..., :2] = scales.astype(np.float16)[..., None].view(np.uint8)
    return blocks


def q8_0_columns(x: np.ndarray) -> np.ndarray:
    """Columns (n, n_per_row) as Q8_0 blocks, (n, blocks_per_row, 34)."""
    return _core.encode(q8_0().kernel(), x).reshape(len(x), -1, 34)


def activations(n: int, n_per_row: int, seed: int = 0) -> np.ndarray:
    """(n, n_per_row) float32 that are multiples of a scale: GGML's conversions to Q8_0 round halves
    differently, and here there is nothing to round."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(-127, 128, (n, n_per_row // 32, 32))
    codes[..., 0] = 127
    scales = 2.0 ** rng.integers(-8, 3, (n, n_per_row // 32, 1))
    return (codes * scales).reshape(n, n_per_row).astype(np.float32)


def assert_products_equal(got: np.ndarray, blocks: np.ndarray, table: np.ndarray, x: np.ndarray) -> None:
    """Up to float rounding: an error of n additions of numbers of these magnitudes."""
    expected = reference.multiply_table(table, blocks, q8_0_columns(x))
    weights = np.abs(reference.decode_table(table, blocks.reshape(-1, 18))).reshape(len(blocks), -1)
    bound = 2e-7 * blocks.shape[1] * (np.abs(x) @ weights.T) + 1e-30
    assert got.shape == expected.shape
    assert (np.abs(got - expected) <= bound).all()


@every_table
def test_decoding_equals_its_twin(table: np.ndarray) -> None:
    blocks = random_blocks(500)
    expected = reference.decode_table(table, blocks)
    assert_blocks_equal(_core.decode_table(table, blocks).view(np.uint8), expected.view(np.uint8), 128)


def test_a_table_of_iq4_nl_is_iq4_nl() -> None:
    blocks = random_blocks(12, 3)
    ids = np.array([3, 0, 11, 3], np.int32)
    expected = ggml.run(ggml.get_rows, blocks, None, ids, kind=Type.IQ4_NL)
    got = ggml.run(ggml.get_rows, blocks, IQ4_NL_VALUES, ids)
    assert_blocks_equal(got.view(np.uint8), expected.view(np.uint8), 128)


@pytest.mark.parametrize("kind", [Type.Q4_0, Type.IQ4_NL], ids=lambda kind: kind.name)
@pytest.mark.parametrize("n_columns", [1, 3, 4, 37])
def test_products_are_those_of_stock_types_with_their_tables(kind: Type, n_columns: int) -> None:
    blocks = random_blocks(64, 5)
    table = TABLES[kind.name]
    x = np.random.default_rng(1).normal(size=(n_columns, 160)).astype(np.float32)
    got = ggml.run(ggml.mul_mat, blocks, table, x, buffer=b"CPU_TABLE")
    assert np.array_equal(got, ggml.run(ggml.mul_mat, blocks, table, x))
    # GGML repacks nothing for a CPU without products of bytes, and its buffer does not look.
    buffers = [None] if _core.build_info()["variant"] == "armv8_0" else [None, b"CPU_REPACK"]
    for buffer in buffers:
        expected = ggml.run(ggml.mul_mat, blocks, None, x, kind=kind, buffer=buffer)
        np.testing.assert_allclose(got, expected, rtol=2e-6, atol=1e-6 * np.abs(expected).max())


@every_table
@pytest.mark.parametrize("stock", [Type.Q4_0, Type.Q8_0], ids=lambda kind: kind.name)
def test_expansion_equals_its_twin_and_keeps_values(table: np.ndarray, stock: Type) -> None:
    if stock == Type.Q4_0:
        table = table >> 4  # what Q4_0 holds
    blocks = random_blocks(200)
    storage = getattr(_core.Storage, stock.name)
    expanded = _core.expand(table, storage, blocks).reshape(-1, reference.BLOCK_BYTES[stock])
    assert_blocks_equal(expanded, reference.expand(table, stock, blocks), reference.BLOCK_BYTES[stock])
    values = _core.decode(storage, expanded)
    assert_blocks_equal(values.view(np.uint8), _core.decode_table(table, blocks).view(np.uint8), 128)


@every_path
@every_table
@pytest.mark.parametrize("n_rows", [1, 5, 16, 33])
def test_every_path_equals_the_reference(path, table: np.ndarray, n_rows: int) -> None:
    blocks = random_blocks(n_rows, 3, seed=n_rows)
    for n_columns in range(1, 15):
        x = activations(n_columns, 96, seed=n_columns)
        got = _core.multiply_table(path, table, blocks, q8_0_columns(x), 3)
        assert_products_equal(got, blocks, table, x)


@every_path
def test_the_largest_sums_do_not_overflow(path) -> None:
    blocks = np.zeros((16, 1, 18), np.uint8)
    blocks[..., :2] = np.array([1], np.float16).view(np.uint8)
    table = np.full(16, -128, np.int8)
    for sign in (-1, 1):
        x = np.full((1, 32), sign * 127, np.float32)
        got = _core.multiply_table(path, table, blocks, q8_0_columns(x), 1)
        assert (got == -128 * 127 * 32 * sign).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("n_threads", [1, 2, 3, 5])
@pytest.mark.parametrize(
    ("n_rows", "blocks_per_row"), [(1, 1), (7, 3), (16, 2), (17, 8), (176, 5), (1000, 4)]
)
def test_matrix_products(layout: str, n_threads: int, n_rows: int, blocks_per_row: int) -> None:
    if layout == "interleaved" and n_rows % 16:
        n_rows += 16 - n_rows % 16
    blocks, table = random_blocks(n_rows, blocks_per_row, seed=n_rows), TABLES["basic"]
    for n_columns in (1, 2, 12, 29):
        x = activations(n_columns, 32 * blocks_per_row)
        got = ggml.run(ggml.mul_mat, blocks, table, x, buffer=LAYOUTS[layout], n_threads=n_threads)
        assert_products_equal(got.reshape(n_columns, n_rows), blocks, table, x)


def test_products_of_stacked_matrices_are_broadcast() -> None:
    blocks, table = random_blocks(2, 19, 3), TABLES["extremes"]
    x = activations(6 * 5, 96).reshape(6, 5, 96)
    got = ggml.run(ggml.mul_mat, blocks, table, x, n_threads=2).reshape(6, 5, 19)
    for plane in range(6):
        assert_products_equal(got[plane], blocks[plane // 3], table, x[plane])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("shared", [True, False], ids=["one input", "an input each"])
@pytest.mark.parametrize("n_tokens", [1, 13])
def test_products_with_experts(layout: str, n_threads: int, shared: bool, n_tokens: int) -> None:
    n_experts, n_used, n_rows = 5, 2, 32 if layout == "interleaved" else 21
    blocks, table = random_blocks(n_experts, n_rows, 3), TABLES["basic"]
    rng = np.random.default_rng(0)
    ids = np.stack([rng.permutation(n_experts - 1)[:n_used] for _ in range(n_tokens)]).astype(np.int32)
    n_inputs = 1 if shared else n_used
    x = activations(n_tokens * n_inputs, 96).reshape(n_tokens, n_inputs, 96)
    got = ggml.run(
        ggml.mul_mat_id, blocks, table, x, ids, buffer=LAYOUTS[layout], n_threads=n_threads
    ).reshape(n_tokens, n_used, n_rows)
    for token in range(n_tokens):
        for slot in range(n_used):
            column = x[token, slot % n_inputs][None]
            assert_products_equal(got[token, slot][None], blocks[ids[token, slot]], table, column)


@every_table
@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_rows_are_looked_up(table: np.ndarray, n_threads: int) -> None:
    blocks = random_blocks(13, 3)
    ids = np.array([0, 12, 5, 5, 1, 7, 3], np.int32)
    got = ggml.run(ggml.get_rows, blocks, table, ids, n_threads=n_threads)
    expected = reference.decode_table(table, blocks[ids].reshape(-1, 18))
    assert_blocks_equal(got.view(np.uint8), expected.view(np.uint8), 128)


def test_activations_are_quantized_as_ggml_does() -> None:
    x = sample_blocks(60).clip(-60000, 60000).reshape(4, -1)
    blocks = random_blocks(16, x.shape[1] // 32)
    got = ggml.run(ggml.mul_mat, blocks, TABLES["IQ4_NL"], x)
    expected = ggml.run(ggml.mul_mat, blocks, None, x, kind=Type.IQ4_NL)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())
