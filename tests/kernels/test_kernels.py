"""Every kernel against its numpy twin and, where GGML has the same, against GGML: bit for bit."""

from __future__ import annotations

import platform

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pyquant import _core
from pyquant.schemes.base import Scheme, grid_codes
from pyquant.schemes.fold_table import balanced, basic
from pyquant.schemes.q4_0 import q4_0
from pyquant.schemes.q4_0_multizero import q4_0_multizero
from pyquant.schemes.q4_0_recentred import q4_0_recentred
from pyquant.schemes.q8_0 import q8_0
from pyquant.schemes.q8_table import q8_table
from tests.support.blocks import BLOCK, assert_blocks_equal, block_lists, sample_blocks
from tests.support.passes import run_pass
from tests.twins import kernels as reference

SCHEMES = {
    scheme.name: scheme
    for scheme in [
        q4_0(),
        q4_0_recentred(),
        *(q4_0_multizero(radius) for radius in range(8)),
        q8_0(),
        q8_table(basic()),
        q8_table(balanced(np.exp(-np.abs(grid_codes().astype(float)) / 30))),
    ]
}
STOCK = {Type.Q4_0: q4_0(), Type.Q8_0: q8_0()}
LARGEST_CODE = {Type.Q4_0: -8, Type.Q8_0: 127}
# GGML converts a weight times an infinite inverse to an integer: x86 gives 0, C leaves open what.
CONVERTS_INFINITY = platform.machine() == "x86_64"
every_scheme = pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
every_storage = pytest.mark.parametrize("storage", STOCK, ids=lambda storage: storage.name)


def inverse_scales(storage: Type, x: np.ndarray) -> np.ndarray:
    """Return the inverse of each block's scale; x: (n, BLOCK)."""
    with np.errstate(over="ignore", divide="ignore"):
        return 1 / (np.abs(x).max(axis=-1) / np.float32(LARGEST_CODE[storage]))


def encode(scheme: Scheme, x: np.ndarray) -> np.ndarray:
    """Stored blocks, (n, bytes)."""
    return _core.encode(scheme.kernel(), x).reshape(-1, block_bytes(scheme))


def block_bytes(scheme: Scheme) -> int:
    return reference.BLOCK_BYTES[scheme.storage]


@every_scheme
@given(x=block_lists())
def test_encode_equals_its_twin(scheme: Scheme, x: np.ndarray) -> None:
    assert_blocks_equal(encode(scheme, x), reference.encode(scheme, x), block_bytes(scheme))


@every_storage
@given(x=block_lists())
def test_encode_equals_ggml(storage: Type, x: np.ndarray) -> None:
    assume(CONVERTS_INFINITY or np.isfinite(inverse_scales(storage, x)[x.any(axis=-1)]).all())
    expected, _ = run_pass(x, _core.ggml_encoder(int(storage)))
    assert_blocks_equal(encode(STOCK[storage], x), expected, reference.BLOCK_BYTES[storage])


@every_storage
def test_many_blocks(storage: Type) -> None:
    x = sample_blocks(20_000)
    scheme = STOCK[storage]
    expected, _ = run_pass(x, _core.ggml_encoder(int(storage)))
    assert_blocks_equal(encode(scheme, x), expected, block_bytes(scheme), "kernel and GGML")
    assert_blocks_equal(reference.encode(scheme, x), expected, block_bytes(scheme), "twin and GGML")


def scale_bits(blocks: np.ndarray) -> int:
    return int(blocks[0, :2].view(np.uint16)[0])


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_a_block_of_zeros(zero: float) -> None:
    x = np.full(BLOCK, zero, np.float32)
    blocks = encode(q4_0(), x)
    assert scale_bits(blocks) == 0x8000  # 0 / -8
    assert blocks[0, 2:].tolist() == [0x88] * 16
    blocks = encode(q8_0(), x)
    assert scale_bits(blocks) == 0
    assert not blocks[:, 2:].any()


@pytest.mark.parametrize("first", [1.0, -1.0])
def test_the_first_of_equal_magnitudes_gives_the_sign(first: float) -> None:
    x = np.zeros(BLOCK, np.float32)
    x[[5, 9]] = first, -first
    scales, codes = reference.load_q4_0(encode(q4_0(), x))
    assert scales[0] == -first / 8
    assert codes[0, [5, 9]].tolist() == [-8, 7]


def test_halves_round_up_in_q4_0_and_away_from_zero_in_q8_0() -> None:
    x = np.zeros(BLOCK, np.float32)
    x[:5] = -8, 0.5, -0.5, 1.5, -1.5
    assert reference.load_q4_0(encode(q4_0(), x))[1][0, :5].tolist() == [-8, 1, 0, 2, -1]
    x[0] = 127
    x[5] = np.nextafter(np.float32(0.5), np.float32(0))  # + 0.5 is 1 in float32
    codes = reference.load_q8_0(encode(q8_0(), x))[1][0]
    assert codes[:6].tolist() == [127, 1, -1, 2, -2, 0]


@every_storage
@pytest.mark.parametrize("extreme", [2e-43, -2e-43, 2e-38, -2e-38])
def test_a_scale_whose_inverse_overflows_stores_code_0(storage: Type, extreme: float) -> None:
    x = np.zeros((1, BLOCK), np.float32)
    x[0, 3] = extreme
    assert np.isinf(inverse_scales(storage, x)).all()
    blocks = encode(STOCK[storage], x)
    assert not blocks[:, 2:].any()
    if CONVERTS_INFINITY:
        expected, _ = run_pass(x, _core.ggml_encoder(int(storage)))
        assert_blocks_equal(blocks, expected, reference.BLOCK_BYTES[storage])


@every_scheme
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, 3e38])
def test_a_block_without_scale_is_named(scheme: Scheme, bad: float) -> None:
    x = sample_blocks(9)
    x[[4, 7], [31, 0]] = bad
    with pytest.raises(ValueError, match="block 4 has no fp16 scale"):
        encode(scheme, x)
    with pytest.raises(ValueError, match="block 4 has no fp16 scale"):
        reference.encode(scheme, x)


@every_storage
def test_the_largest_scale(storage: Type) -> None:
    # 65519.996 rounds to 65504, the largest fp16; 65520 would round to infinity.
    steps = {Type.Q4_0: -8, Type.Q8_0: 127}[storage]
    x = np.zeros((1, BLOCK), np.float32)
    x[0, 1] = np.nextafter(np.float32(65520), np.float32(0)) * np.float32(steps)
    assert scale_bits(encode(STOCK[storage], x)) == 0x7BFF
    x[0, 1] = np.float32(65520) * np.float32(steps)
    with pytest.raises(ValueError, match="block 0"):
        encode(STOCK[storage], x)


def test_recentred_codes_are_nibbles_in_twos_complement() -> None:
    x = sample_blocks(500)
    stock, recentred = encode(q4_0(), x), encode(q4_0_recentred(), x)
    assert_blocks_equal(recentred, stock, 18, "values, and so the file, stay")
    _, grid = reference.grid_q4_0(x)
    codes = q4_0_recentred().fold[grid.view(np.uint8)]
    qs = stock[:, 2:] ^ 0x88
    assert np.array_equal(codes, np.hstack([qs & 15, qs >> 4]))
    signed = codes.astype(np.int8) << 4 >> 4
    assert np.array_equal(signed, reference.load_q4_0(stock)[1])


@pytest.mark.parametrize("radius", range(8))
def test_multizero_zeroes_codes_up_to_its_radius_and_no_others(radius: int) -> None:
    x = sample_blocks(500)
    stock = encode(q4_0(), x)
    folded = encode(q4_0_multizero(radius), x)
    if radius == 0:
        assert_blocks_equal(folded, stock, 18)
    before_d, before = reference.load_q4_0(stock)
    after_d, after = reference.load_q4_0(folded)
    assert np.array_equal(before_d.view(np.uint16), after_d.view(np.uint16))
    assert np.array_equal(after, np.where(np.abs(before) <= radius, 0, before))


@pytest.mark.parametrize("radius", [0, 1, 7])
@pytest.mark.parametrize("n_experts", [1, 3])
def test_multizero_folds_what_ggml_weighs_by_importance(radius: int, n_experts: int) -> None:
    rng = np.random.default_rng(radius)
    x = rng.normal(size=(6, 96)).astype(np.float32)
    importance = rng.exponential(size=(n_experts, 96)).astype(np.float32)
    weighed, _ = run_pass(x, _core.ggml_encoder(int(Type.Q4_0)), importance=importance)
    plain, _ = run_pass(x, _core.ggml_encoder(int(Type.Q4_0)))
    assert not np.array_equal(weighed, plain)
    folded, _ = run_pass(x, _core.scheme_encoder(q4_0_multizero(radius).kernel()), importance=importance)
    scales, values = reference.load_q4_0(weighed.reshape(-1, 18))
    expected = reference.store_q4_0(scales, np.where(np.abs(values) <= radius, 0, values).astype(np.int8))
    assert_blocks_equal(folded, expected, 18)


@every_storage
@given(
    blocks=st.integers(1, 5).flatmap(lambda n: hnp.arrays(np.uint8, (n, 34))),
    scale=st.floats(width=16, allow_nan=False, allow_infinity=False),
)
def test_decode_equals_its_twin_and_ggml(storage: Type, blocks: np.ndarray, scale: float) -> None:
    blocks = np.ascontiguousarray(blocks[:, : reference.BLOCK_BYTES[storage]])
    blocks[:, :2] = np.array([scale], np.float16).view(np.uint8)
    x = _core.decode(getattr(_core.Storage, storage.name), blocks)
    assert_blocks_equal(x.view(np.uint8), reference.decode(storage, blocks).view(np.uint8), 128)
    decoded, _ = run_pass(blocks, _core.ggml_encoder(int(Type.F32)), source=storage, n_per_row=BLOCK)
    assert_blocks_equal(x.view(np.uint8), decoded, 128)


@pytest.mark.parametrize("source", [Type.F16, Type.BF16], ids=lambda source: source.name)
def test_every_finite_half(source: Type) -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    floats = bits.view(np.float16).astype(np.float32)
    if source is Type.BF16:
        floats = (bits.astype(np.uint32) << 16).view(np.float32)
    finite = np.isfinite(floats)
    bits, floats = bits[finite][None], floats[finite][None]
    converted, _ = run_pass(bits, _core.ggml_encoder(int(Type.F32)), source=source)
    assert_blocks_equal(converted, floats.view(np.uint8), 4)
    back, _ = run_pass(floats, _core.ggml_encoder(int(source)))
    assert_blocks_equal(back, bits.view(np.uint8), 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: _core.encode(q4_0().kernel(), np.zeros(33, np.float32)), "multiple of 32"),
        (lambda: _core.decode(_core.Storage.Q4_0, np.zeros(17, np.uint8)), "whole blocks"),
        (lambda: _core.count(np.zeros(18, np.uint8), 31, True, 0), "multiple of 32"),
        (lambda: _core.count(np.zeros(18, np.uint8), 64, True, 0), "whole rows"),
        (lambda: _core.Scheme(_core.Grid.Q4_0, _core.Storage.Q4_0, np.zeros(16, np.int8)), "256"),
        (lambda: _core.Scheme(_core.Grid.Q8_0, _core.Storage.Q4_0, grid_codes()), "-8..7"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_arrays_are_never_copied_silently() -> None:
    with pytest.raises(TypeError):
        _core.encode(q4_0().kernel(), np.zeros(32))
    with pytest.raises(TypeError):
        _core.encode(q4_0().kernel(), np.zeros((32, 2), np.float32)[:, 0])
