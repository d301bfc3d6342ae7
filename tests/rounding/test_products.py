"""Check products of many tokens, rounded to BF16 where the CPU multiplies it, and in float32."""

from __future__ import annotations

import numpy as np
import pytest

from pyquant import _core
from pyquant.calibration.products import add_products, multiply, multiply_back
from tests.support.bf16 import rounded

needs_bf16 = pytest.mark.skipif(not _core.HAS_BF16_PRODUCTS, reason="this CPU does not multiply BF16")
# Strips of 64 columns, blocks of 256 and of 1,024 rows, 4 rows of a tile, pairs of tokens; and what is left.
widths = pytest.mark.parametrize(
    ("n_tokens", "n_y", "n_z"), [(1, 1, 1), (2, 64, 3), (17, 31, 70), (600, 257, 1030), (37, 1300, 65)]
)


@pytest.fixture(params=[pytest.param(True, marks=needs_bf16), False], ids=["BF16", "F32"], autouse=True)
def bf16(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(_core, "HAS_BF16_PRODUCTS", request.param)
    return bool(request.param)


def integers(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).integers(-9, 10, shape).astype(np.float32)


@widths
def test_every_token_is_in_every_sum(n_tokens: int, n_y: int, n_z: int) -> None:
    y, z = integers(n_tokens, n_y), integers(n_tokens, n_z)
    hessian, moved = integers(n_y, n_y), integers(n_z, n_y)
    expected = hessian + y.T @ y, moved + z.T @ y  # exact in float32
    add_products(y, z, hessian, moved, threads=2)
    np.testing.assert_array_equal(np.tril(hessian), np.tril(expected[0]))
    np.testing.assert_array_equal(moved, expected[1])


@widths
def test_a_matrix_is_multiplied_with_every_token(n_tokens: int, n_y: int, n_z: int) -> None:
    tokens, matrix = integers(n_tokens, n_y), integers(n_z, n_y)
    np.testing.assert_array_equal(multiply(matrix, tokens, threads=2), tokens @ matrix.T)
    outputs = integers(n_tokens, n_z)
    np.testing.assert_array_equal(multiply_back(matrix, outputs, threads=2), outputs @ matrix)


@widths
def test_a_matrix_may_be_as_it_is_stored(bf16: bool, n_tokens: int, n_y: int, n_z: int) -> None:
    tokens, outputs, matrix = integers(n_tokens, n_y), integers(n_tokens, n_z), integers(n_z, n_y)
    upper = (matrix.view(np.uint32) >> 16).astype(np.uint16)  # exact, as 8 bits hold these numbers
    for stored in (matrix, *((matrix.astype(np.float16), upper) if bf16 else ())):
        np.testing.assert_array_equal(multiply(stored, tokens, threads=2), tokens @ matrix.T)
        np.testing.assert_array_equal(multiply_back(stored, outputs, threads=2), outputs @ matrix)


def test_tokens_are_rounded_where_that_is_quicker(bf16: bool) -> None:
    rng = np.random.default_rng(0)
    y, z, matrix = (rng.normal(size=shape).astype(np.float32) for shape in ((500, 90), (500, 70), (40, 90)))
    hessian, moved = np.zeros((90, 90), np.float32), np.zeros((70, 90), np.float32)
    add_products(y, z, hessian, moved)
    product, back = multiply(matrix, y), multiply_back(matrix.T.copy(), y)
    np.testing.assert_allclose(back, product, rtol=1e-5, atol=1e-4)
    if bf16:
        y, z, matrix = rounded(y), rounded(z), rounded(matrix)
    y, z, matrix = (x.astype(np.float64) for x in (y, z, matrix))
    for got, expected in ((np.tril(hessian), np.tril(y.T @ y)), (moved, z.T @ y), (product, y @ matrix.T)):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)


@needs_bf16
def test_threads_do_not_change_sums() -> None:
    rng = np.random.default_rng(1)
    y, z = (rng.normal(size=(700, n)).astype(np.float32) for n in (1100, 300))
    results = []
    for threads in (1, 2, 5):
        sums = np.zeros((1100, 1100), np.float32), np.zeros((300, 1100), np.float32)
        _core.add_token_products(y, z, *sums, n_threads=threads)
        products = (
            _core.multiply_rows(y, y[:9], n_threads=threads),
            _core.multiply_columns(z, z[:300], n_threads=threads),
        )
        results.append([*sums, *products])
    for result in results[1:]:
        for one, other in zip(results[0], result):
            np.testing.assert_array_equal(one, other)


@needs_bf16
def test_shapes_that_do_not_fit_are_refused() -> None:
    y, z = np.zeros((5, 4), np.float32), np.zeros((5, 3), np.float32)
    sums = np.zeros((4, 4), np.float32), np.zeros((3, 4), np.float32)
    with pytest.raises(ValueError, match="as many of both"):
        _core.add_token_products(y, z[:4].copy(), *sums, n_threads=1)
    with pytest.raises(ValueError, match="moved"):
        _core.add_token_products(y, z, sums[0], sums[1].T.copy(), n_threads=1)
    with pytest.raises(ValueError, match="one width"):
        _core.multiply_rows(y, z, n_threads=1)
    with pytest.raises(ValueError, match="rows of float32, of float16, or of BF16"):
        _core.multiply_rows(y, y.astype(np.float64), n_threads=1)
    with pytest.raises(ValueError, match="rows of float32, of float16, or of BF16"):
        _core.multiply_rows(y, np.asfortranarray(y), n_threads=1)
    with pytest.raises(ValueError, match="as wide as w has rows"):
        _core.multiply_columns(y, z, n_threads=1)
