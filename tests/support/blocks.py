"""Blocks of weights that quantizers get wrong, and a comparison of blocks that says how."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

BLOCK = 32
FLOAT_MAX = float(np.finfo(np.float32).max)


def _random(rng: np.random.Generator, scale: float) -> NDArray[np.float64]:
    return rng.normal(size=BLOCK) * scale


def _constant(rng: np.random.Generator, scale: float) -> NDArray[np.float64]:
    return np.full(BLOCK, rng.normal() * scale)


def _single(rng: np.random.Generator, scale: float) -> NDArray[np.float64]:
    x = np.zeros(BLOCK)
    x[rng.integers(BLOCK)] = rng.normal() * scale
    return x


def _signed_zeros(rng: np.random.Generator, scale: float) -> NDArray[np.float64]:
    return rng.choice([0.0, -0.0], BLOCK)


def _ties(rng: np.random.Generator, scale: float) -> NDArray[np.float64]:
    return rng.choice([-scale, scale, scale / 3, 0.0], BLOCK)


def _halves(rng: np.random.Generator, scale: float) -> NDArray[np.float64]:
    # Multiples of half a step of both grids: every other one is halfway between two codes.
    step = scale / rng.choice([8, 127])
    x = rng.integers(-16, 17, BLOCK) * (step / 2)
    x[rng.integers(BLOCK)] = rng.choice([-scale, scale])
    return x


def _near_halves(rng: np.random.Generator, scale: float) -> NDArray[np.float64]:
    x = _halves(rng, scale).astype(np.float32)
    toward = rng.choice([-np.inf, np.inf], BLOCK).astype(np.float32)
    return np.nextafter(x, toward).clip(-FLOAT_MAX, FLOAT_MAX)


def _mixed(rng: np.random.Generator, scale: float) -> NDArray[np.float64]:
    return rng.normal(size=BLOCK) * scale * 2.0 ** rng.integers(-140, 1, BLOCK)


def _bits(rng: np.random.Generator, scale: float) -> NDArray[np.float64]:
    x = rng.integers(0, 2**32, BLOCK, dtype=np.uint32).view(np.float32)
    largest = np.float32(min(8 * scale, 65504.0 * 8))
    return np.where(np.abs(x) <= largest, x, np.float32(scale))


KINDS = [_random, _constant, _single, _signed_zeros, _ties, _halves, _near_halves, _mixed, _bits]

# Magnitudes: ordinary; 2^-16 .. 2^-25 times 8, where the fp16 scale becomes subnormal and 0; float32
# subnormals, whose scale has an inverse that overflows; and up to where the scale overflows fp16.
MAGNITUDES = st.one_of(
    st.floats(-8, 4),
    st.floats(-28, -10),
    st.floats(-149, -100),
    st.floats(14, 18.9),
).map(lambda exponent: 2.0**exponent)


@st.composite
def block_lists(draw, max_blocks: int = 8) -> NDArray[np.float32]:
    """(n, 32) float32, every block of its own kind and magnitude; all have an fp16 scale."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds = draw(st.lists(st.tuples(st.sampled_from(KINDS), MAGNITUDES), min_size=1, max_size=max_blocks))
    x = np.stack([kind(rng, scale) for kind, scale in kinds]).astype(np.float32)
    return x.clip(-65504 * 7.9, 65504 * 7.9).astype(np.float32)


def sample_blocks(n: int, seed: int = 0) -> NDArray[np.float32]:
    """(n, 32) float32 of all kinds in turn, at magnitudes from 2^-30 to 2^16."""
    rng = np.random.default_rng(seed)
    kinds = [KINDS[i % len(KINDS)](rng, 2.0 ** rng.uniform(-30, 16)) for i in range(n)]
    return np.stack(kinds).astype(np.float32)


def assert_blocks_equal(
    got: NDArray[np.uint8], expected: NDArray[np.uint8], block_bytes: int, what: str = "blocks"
) -> None:
    """Compares stored blocks; a difference is told as their number, the worst block and its bytes."""
    assert got.size == expected.size, f"{what}: {got.size} bytes, expected {expected.size}"
    got, expected = got.reshape(-1, block_bytes), expected.reshape(-1, block_bytes)
    different = (got != expected).sum(axis=1)
    n_bad = np.count_nonzero(different)
    if not n_bad:
        return
    worst = int(different.argmax())
    raise AssertionError(
        f"{what}: {n_bad} of {len(got)} blocks differ ({n_bad / len(got):.2%}), "
        f"worst is block {worst}, {different[worst]} of {block_bytes} bytes\n"
        f"  got      {got[worst].tobytes().hex(' ', 2)}\n"
        f"  expected {expected[worst].tobytes().hex(' ', 2)}"
    )
