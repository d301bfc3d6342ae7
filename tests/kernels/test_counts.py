"""Counts, sums of errors and scores against their numpy twins."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import log_softmax

from pyquant import _core
from pyquant.schemes.q4_0 import q4_0
from tests.support.blocks import BLOCK
from tests.support.passes import errors, run_pass
from tests.twins import kernels as reference

STORAGES = [Type.Q4_0, Type.Q8_0]
every_storage = pytest.mark.parametrize("storage", STORAGES, ids=lambda storage: storage.name)

SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 7).map(lambda n_blocks: n_blocks * BLOCK))
CODES = hnp.arrays(np.uint8, SHAPES, elements=st.sampled_from([0, 0, 0, 1, 8, 8, 15]))


def stored_rows(codes: np.ndarray, storage: Type) -> np.ndarray:
    """Rows of stored codes (n_rows, n_per_row), 0..15 or 0..255, as blocks with random scales."""
    blocks = codes.reshape(-1, BLOCK)
    scales = np.random.default_rng(0).normal(size=len(blocks)).astype(np.float16)
    if storage is Type.Q4_0:
        return reference.store_q4_0(scales, blocks.astype(np.int8) - np.int8(8))
    return reference.store_q8_0(scales, blocks.view(np.int8))


@every_storage
@given(codes=CODES, zero_code=st.sampled_from([0, 8]))
def test_counts_equal_their_twins(storage: Type, codes: np.ndarray, zero_code: int) -> None:
    nibbles = storage is Type.Q4_0
    counts, runs = _core.count(stored_rows(codes, storage), codes.shape[1], nibbles, zero_code)
    assert np.array_equal(counts, reference.code_counts(codes, 16 if nibbles else 256))
    assert np.array_equal(runs, reference.zero_runs(codes, zero_code))


@every_storage
def test_all_codes_are_counted(storage: Type) -> None:
    n_codes = 16 if storage is Type.Q4_0 else 256
    codes = np.random.default_rng(0).integers(0, n_codes, (33, 96)).astype(np.uint8)
    counts, _ = _core.count(stored_rows(codes, storage), 96, storage is Type.Q4_0, 0)
    assert np.array_equal(counts, reference.code_counts(codes, n_codes))


def runs_of(*rows: str) -> dict[int, int]:
    """Runs by length of rows that are drawn with 0 and x; the twin agrees."""
    codes = np.array([[0 if c == "0" else 5 for c in row] for row in rows], np.uint8)
    found = [
        _core.count(stored_rows(codes, storage), codes.shape[1], storage is Type.Q4_0, 0)[1]
        for storage in STORAGES
    ]
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], reference.zero_runs(codes, 0))
    return {length: int(n) for length, n in enumerate(found[0], 1) if n}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["x" * 32], {}),
        (["0" + "x" * 31], {1: 1}),
        (["x" * 31 + "0"], {1: 1}),
        (["0x" * 16], {1: 16}),
        (["00x" + "000x" + "x" * 25], {2: 1, 3: 1}),
        (["0" * 15 + "x" + "0" * 16], {15: 1, 16: 1}),
        (["0" * 17 + "x" * 15], {16: 1}),
        (["0" * 32], {16: 1}),
        (["0" * 320], {16: 1}),  # many words of the mask
        (["x" * 30 + "00", "000" + "x" * 29], {2: 1, 3: 1}),  # a run ends with its row
        (["x" * 30 + "000000" + "x" * 28], {6: 1}),  # over the border of a block
        (["x" * 60 + "0" * 9 + "x" * 27], {9: 1}),  # over the border of a word, odd number of blocks
        (["0" * 32 + "x" * 32, "x" * 32 + "0" * 32], {16: 2}),
    ],
)
def test_zero_runs(rows: list[str], expected: dict[int, int]) -> None:
    assert runs_of(*rows) == expected


@given(x=hnp.arrays(np.float32, SHAPES, elements=st.floats(-100, 100, width=32)))
def test_errors_equal_their_twin(x: np.ndarray) -> None:
    out, result = run_pass(x, _core.scheme_encoder(q4_0().kernel()), measure=True)
    expected = reference.error(x, reference.decode(Type.Q4_0, out))
    got = errors(result)
    for key in ("largest_error", "largest_error_at", "zeros"):
        assert got[key] == expected[key]
    for key in ("squared_error", "squared_weight", "squared_value"):
        assert got[key] == pytest.approx(expected[key], rel=1e-12)


@pytest.mark.parametrize("spread", [0, 1, 30, 200])
@pytest.mark.parametrize("n_vocab", [1, 15, 512, 513, 4099])
def test_negative_log_likelihood(spread: float, n_vocab: int) -> None:
    rng = np.random.default_rng(n_vocab)
    logits = (rng.normal(size=(37, n_vocab)) * spread + 12).astype(np.float32)
    targets = rng.integers(0, n_vocab, 37).astype(np.int32)
    nll = _core.negative_log_likelihood(logits, targets, 1)
    exact = -log_softmax(logits.astype(np.float64), axis=1)[np.arange(37), targets]
    assert nll == pytest.approx(exact, abs=1e-6)
    assert reference.negative_log_likelihood(logits, targets) == pytest.approx(exact, abs=1e-6)
    for n_threads in (2, 3, 64):
        assert np.array_equal(_core.negative_log_likelihood(logits, targets, n_threads), nll)


def test_negative_log_likelihood_of_impossible_tokens() -> None:
    logits = np.array([[0, -np.inf, -1e30]], np.float32)
    nll = [_core.negative_log_likelihood(logits, np.array([t], np.int32), 1)[0] for t in range(3)]
    assert nll == [0, np.inf, pytest.approx(1e30)]


@pytest.mark.parametrize(
    ("n_rows", "target", "message"), [(1, 4, "outside"), (1, -1, "outside"), (2, 0, "expected")]
)
def test_targets_that_do_not_fit_are_refused(n_rows: int, target: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _core.negative_log_likelihood(np.zeros((n_rows, 4), np.float32), np.array([target], np.int32), 1)
