"""Rounding with errors passed on: against its numpy twin, and the factors that it goes by."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from gguf.quants import dequantize

from pyquant import _core
from pyquant.models.codebook import IQ4_NL_VALUES
from pyquant.models.tensor_type import TensorType as Type
from tests.support.blocks import assert_blocks_equal
from tests.support.passes import run_pass
from tests.support.rows import N, assert_rows_equal, hand_made
from tests.twins import gptq as twin
from tests.twins.formats import FORMATS
from tests.twins.formats.ecsq import EcsqFormat
from tests.twins.formats.grid_format import GridFormat
from tests.twins.formats.table import TableFormat

NVFP4_LARGEST = 6 * 448  # the highest code by the highest scale

TYPES = [Type(number) for number in _core.gptq_types()]
every_type = pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
every_input = pytest.mark.parametrize("known", ["hessian", "diagonal", "ones"])

TABLES = {
    "powers": [-128, -64, -32, -16, -8, -4, -2, -1, 0, 1, 2, 4, 8, 16, 32, 64],
    "within 4 bits": [-8, -7, -6, -3, 0, 1, 3, 5, 7],
    "two": [-5, 3],
    "one": [-8],
}
CASES = [
    pytest.param(storage, values, id=f"{storage.name}, {name}")
    for storage in (Type.Q4_0, Type.Q8_0, Type.Q4_T)
    for name, values in TABLES.items()
    if storage is not Type.Q4_0 or min(values) >= -8  # more Q4_0 does not hold
]


@cache
def hessian(n: int = N, n_tokens: int = 4 * N, seed: int = 0) -> np.ndarray:
    """(n, n) float32 of inputs that go together, some columns far larger than others."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_tokens, n)) * np.exp(rng.normal(size=n))
    x[:, 1:] += 0.7 * x[:, :-1] + rng.normal(size=(n_tokens, 1))
    return (x.T @ x / n_tokens).astype(np.float32)


def factor(known: str, together: int | tuple[int, int, int]) -> _core.Factor:
    if known == "hessian":
        return _core.factorize(hessian(), dampening=0.01, together=together)
    return _core.independent(np.ones(N, np.float32) if known == "ones" else hessian().diagonal().copy())


def test_every_format_has_a_twin() -> None:
    assert set(FORMATS) == set(TYPES)


@every_type
@every_input
def test_rounding_equals_its_twin(kind: Type, known: str) -> None:
    known_input = factor(known, _core.columns_together(int(kind)))
    form = FORMATS[kind]
    x = hand_made(17 if isinstance(form, GridFormat) else 64)
    if kind is Type.NVFP4:
        x = x.clip(-NVFP4_LARGEST, NVFP4_LARGEST)
    stored, values = twin.encode(x, known_input, form)
    encoder = _core.gptq_encoder(int(kind), known_input)
    assert_rows_equal(encoder, x, stored, stored.shape[1] * form.columns // N)
    for decoded in (encoder.decode(stored, N), dequantize(stored, kind)):
        np.testing.assert_array_equal(decoded, values)


@pytest.mark.ci
@every_input
@pytest.mark.parametrize(("storage", "values"), CASES)
def test_rounding_to_tables_equals_its_twin(storage: Type, values: list[int], known: str) -> None:
    values = np.array(values, np.int8)
    codes = np.arange(len(values)) if storage is Type.Q4_T else values + 8 * (storage is Type.Q4_0)
    codes = codes.astype(np.uint8)
    table = np.resize(values, 16)
    known_input = factor(known, 32)
    encoder = _core.gptq_table_encoder(
        getattr(_core.Storage, storage.name), values, codes, table, known_input
    )
    x = hand_made()
    stored, decoded = twin.encode(x, known_input, TableFormat(storage, values, codes))
    assert_rows_equal(encoder, x, stored, stored.shape[1] * 32 // N)
    np.testing.assert_array_equal(encoder.decode(stored, N), decoded)


@every_input
def test_rounding_to_one_step_equals_its_twin(known: str) -> None:
    known_input = factor(known, 32)
    x, step = hand_made(), np.float16(0.0123)
    stored, decoded = twin.encode(x, known_input, EcsqFormat(step))
    encoder = _core.ecsq_encoder([step], known_input)
    assert_rows_equal(encoder, x, stored, 34)
    np.testing.assert_array_equal(encoder.decode(stored, N), decoded)


@every_input
def test_rounding_to_a_step_for_each_row_equals_its_twin(known: str) -> None:
    known_input, x = factor(known, 32), hand_made()
    steps = (0.01 * np.random.default_rng(2).exponential(size=len(x)) + 1e-4).astype(np.float16)
    stored, decoded = twin.encode(x, known_input, EcsqFormat(steps))
    encoder = _core.ecsq_encoder(steps.tolist(), known_input)
    assert_rows_equal(encoder, x, stored, 34)
    np.testing.assert_array_equal(encoder.decode(stored, N), decoded)


def output_error(h: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    """Sum over rows of e H e^T: the mean squared error of what comes out."""
    e = (x - y).astype(np.float64)
    return float(((e @ h) * e).sum())


@every_type
def test_passing_errors_on_pays(kind: Type) -> None:
    h, x = hessian(), np.random.default_rng(1).laplace(size=(48, N)).astype(np.float32)
    gptq, weighted = (
        _core.gptq_encoder(int(kind), factor(known, _core.columns_together(int(kind))))
        for known in ("hessian", "diagonal")
    )
    errors = [output_error(h, x, encoder.decode(encoder.encode(x), N)) for encoder in (gptq, weighted)]
    assert errors[0] < 0.6 * errors[1]


@pytest.mark.ci
@every_type
def test_no_sweep_adds_to_the_error(kind: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    few = np.exp(-np.arange(N) / 100)[:, None]  # directions that most of the inputs lie in
    inputs = rng.normal(size=(4 * N, N)) @ (rng.normal(size=(N, N)) * few)
    h = (inputs.T @ inputs / len(inputs)).astype(np.float32)
    known_input = _core.factorize(h, dampening=0.03, together=_core.columns_together(int(kind)))
    damped = known_input.hessian.astype(np.float64)
    errors, settled = [], 0

    class Rows(twin._Rows):
        def settle(self, form: twin.Format, *of_sub: object) -> None:
            nonlocal settled
            super().settle(form, *of_sub)
            settled += form.sub
            if settled % N == 0:  # every column has its codes, and has been visited as often as the others
                e = self.error.T.astype(np.float64)
                errors.append(((e @ damped) * e).sum(axis=1))

    monkeypatch.setattr(twin, "_Rows", Rows)
    monkeypatch.setattr(twin, "SWEEPS", 3)
    twin.encode(rng.laplace(size=(16, N)).astype(np.float32), known_input, FORMATS[kind])
    assert len(errors) == 4
    assert (np.diff(errors, axis=0) <= 1e-6 * errors[0]).all()
    assert np.sum(errors[2]) < 0.92 * np.sum(errors[0])


@every_type
@pytest.mark.usefixtures("ggml_grids")
def test_the_weighted_search_is_no_worse_than_ggmls(kind: Type) -> None:
    x = np.random.default_rng(2).laplace(size=(64, N)).astype(np.float32)
    w = hessian().diagonal().copy()
    ours = _core.gptq_encoder(int(kind), _core.independent(w))
    theirs = _core.ggml_encoder(int(kind))
    errors = []
    for stored in (ours.encode(x), theirs.encode(x, importance=w)):
        errors.append((w * np.square(x - theirs.decode(stored, N)).astype(np.float64)).sum())
    assert errors[0] <= errors[1]


@every_type
@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_threads_and_chunks_change_nothing(kind: Type, n_threads: int) -> None:
    known_input = factor("hessian", _core.columns_together(int(kind)))
    encoder = _core.gptq_encoder(int(kind), known_input)
    x = np.random.default_rng(0).laplace(size=(1100, N)).astype(np.float32)  # chunks are of 512 rows
    expected = encoder.encode(x)
    written, _ = run_pass(x, encoder, n_threads=n_threads)
    assert_blocks_equal(written, expected, expected.shape[1])
    for n_rows in (1, 7, 40):
        parts = [encoder.encode(x[at : at + n_rows]) for at in range(0, 80, n_rows)]
        assert_blocks_equal(np.vstack(parts)[:80], expected[:80], expected.shape[1])


@every_type
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused(kind: Type, bad: float) -> None:
    encoder = _core.gptq_encoder(int(kind), factor("ones", _core.columns_together(int(kind))))
    x = np.random.default_rng(0).laplace(size=(1030, N)).astype(np.float32)
    x[1025, 300] = bad
    with pytest.raises(_core.WeightError) as raised:
        run_pass(x, encoder, n_threads=2)
    assert raised.value.index == 1025 * N + 300
    assert not np.isfinite(raised.value.value)


@every_type
def test_weights_whose_scale_overflows_are_refused(kind: Type) -> None:
    encoder = _core.gptq_encoder(int(kind), factor("hessian", _core.columns_together(int(kind))))
    x = np.random.default_rng(0).laplace(size=(40, N)).astype(np.float32)
    x[33, 5] = 1e9
    if kind is Type.MXFP4:  # whose scales reach as far as floats
        assert encoder.decode(encoder.encode(x), N)[33, 5] == pytest.approx(1e9, rel=0.2)
        return
    with pytest.raises(_core.WeightError) as raised:
        encoder.encode(x)
    assert (raised.value.index, raised.value.value) == (33 * N + 5, 1e9)


@pytest.mark.parametrize(
    "encoder", [_core.ggml_encoder, lambda kind: _core.gptq_encoder(kind, factor("ones", 64))]
)
def test_nvfp4_refuses_what_its_scales_do_not_reach(encoder: Callable[[int], _core.Encoder]) -> None:
    x = np.random.default_rng(0).laplace(size=(4, N)).astype(np.float32)
    x[2, 7] = -NVFP4_LARGEST
    encoder = encoder(int(Type.NVFP4))
    assert encoder.decode(encoder.encode(x), N)[2, 7] == -NVFP4_LARGEST
    x[2, 7] *= 1.01
    with pytest.raises(_core.WeightError) as raised:
        encoder.encode(x)
    assert raised.value.index == 2 * N + 7


@pytest.mark.parametrize("together", [32, 256])
def test_a_factor_is_of_the_damped_hessians(together: int) -> None:
    h = hessian()
    found = _core.factorize(h, dampening=0.01, together=together)
    order, d, u = found.order, found.diagonal.astype(np.float64), found.upper.astype(np.float64)
    assert np.array_equal(np.triu(u), u)
    assert (u.diagonal() == 1).all()
    assert (d > 0).all()
    damped = h.astype(np.float64) + np.eye(N) * 0.01 * h.diagonal().mean(dtype=np.float64)
    expected = damped[np.ix_(order, order)]
    # U and D are rounded to float32; each entry is a sum no greater than the root of two diagonals.
    bound = 3e-7 * np.sqrt(np.outer(expected.diagonal(), expected.diagonal()))
    assert (np.abs((u * d) @ u.T - expected) <= bound).all()
    np.testing.assert_array_equal(found.hessian, expected.astype(np.float32))


@pytest.mark.parametrize(
    ("group", "scale", "block"), [(1, 32, 32), (1, 32, 256), (1, 16, 256), (4, 32, 256), (8, 16, 256)]
)
def test_columns_come_by_falling_diagonal_and_blocks_stay_whole(group: int, scale: int, block: int) -> None:
    h = hessian()
    order = _core.factorize(h, dampening=0.01, together=(group, scale, block)).order
    assert (np.diff(order.reshape(-1, group), axis=1) == 1).all()
    assert sorted(order) == list(range(N))
    diagonal = h.diagonal().astype(np.float64)
    for size, within in ((group, scale), (scale, block), (block, N)):
        sums = diagonal[order].reshape(-1, within // size, size).sum(axis=2)
        assert (np.diff(sums, axis=1) <= 0).all()
    for size in (scale, block):
        assert (np.ptp(order.reshape(-1, size) // size, axis=1) == 0).all()


def test_equal_columns_keep_their_order() -> None:
    found = _core.factorize(np.eye(N, dtype=np.float32), dampening=0.5, together=256)
    assert np.array_equal(found.order, np.arange(N))
    assert np.array_equal(found.upper, np.eye(N))
    np.testing.assert_array_equal(found.diagonal, np.float32(1.5))


def test_a_factor_is_read_only() -> None:
    found = factor("hessian", 32)
    for array in (found.order, found.diagonal, found.upper, found.hessian):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    assert factor("diagonal", 32).upper is factor("diagonal", 32).hessian is None


def dead(h: np.ndarray) -> np.ndarray:
    """Inputs that are always 0."""
    h = h.copy()
    h[64:160] = 0
    h[:, 64:160] = 0
    h[7] = 0
    h[:, 7] = 0
    return h


def singular(h: np.ndarray) -> np.ndarray:
    """Moments of fewer tokens than columns."""
    return hessian(n_tokens=N // 8)


@every_type
@pytest.mark.usefixtures("ggml_grids")
@pytest.mark.parametrize("change", [dead, singular, np.zeros_like])
def test_hessians_that_say_little(kind: Type, change: Callable[[np.ndarray], np.ndarray]) -> None:
    h, together = change(hessian()), _core.columns_together(int(kind))
    found = _core.factorize(h, dampening=0.01, together=together)
    assert np.isfinite(found.upper).all()
    assert (found.diagonal > 0).all()
    x = np.random.default_rng(4).laplace(size=(32, N)).astype(np.float32)
    encoder, plain = _core.gptq_encoder(int(kind), found), _core.ggml_encoder(int(kind))
    stored, theirs = encoder.encode(x), plain.encode(x, importance=np.ones(N, np.float32))
    decoded, theirs = encoder.decode(stored, N), plain.decode(theirs, N)
    assert output_error(h, x, decoded) <= output_error(h, x, theirs)
    if not h[64:160].any():  # inputs that never came may come: their weights are not given up
        assert np.square(x - decoded)[:, 64:160].sum() < 1.1 * np.square(x - theirs)[:, 64:160].sum()


@pytest.mark.parametrize(
    ("h", "dampening"),
    [(-np.eye(N), 0.01), (np.full((N, N), np.nan), 0.01), (np.ones((N, N)), 1e-20)],
    ids=["negative", "nan", "singular, undamped"],
)
def test_hessians_that_are_not_positive_definite(h: np.ndarray, dampening: float) -> None:
    with pytest.raises(ValueError, match="not positive definite"):
        _core.factorize(h.astype(np.float32), dampening=dampening, together=32)


def test_what_does_not_fit_is_refused() -> None:
    for shape, together in (((64, 32), 32), ((48, 48), 32), ((128, 128), 256), ((64,), 32)):
        with pytest.raises(ValueError, match="hessian: expected"):
            _core.factorize(np.ones(shape, np.float32), dampening=1, together=together)
    with pytest.raises(ValueError, match="weights: expected"):
        _core.independent(np.ones(48, np.float32))
    encoder = _core.gptq_encoder(int(Type.Q4_0), factor("hessian", 32))
    with pytest.raises(ValueError, match="inputs of another size"):
        encoder.encode(np.ones((4, 2 * N), np.float32))
    for known_input in (factor("hessian", 32), _core.independent(np.ones(32, np.float32))):
        with pytest.raises(ValueError, match="parts columns that share a scale"):
            _core.gptq_encoder(int(Type.Q4_K), known_input)
    with pytest.raises(ValueError, match="GPTQ does not round to type iq1_s"):
        _core.gptq_encoder(int(Type.IQ1_S), factor("ones", 32))
    values = IQ4_NL_VALUES
    with pytest.raises(ValueError, match="up to 16 values"):
        _core.gptq_table_encoder(
            _core.Storage.Q8_0, np.arange(17, dtype=np.int8), np.arange(17, dtype=np.uint8), values,
            factor("ones", 32),
        )  # fmt: skip
