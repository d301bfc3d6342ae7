"""Blocks that hold weights as they are, where these lie on a lattice of their type already."""

from __future__ import annotations

import numpy as np
import pytest

from pyquant import _core
from pyquant.models.tensor_type import TensorType as Type
from tests.support.rows import N, assert_rows_equal, hand_made
from tests.twins import gptq as twin
from tests.twins.formats import FORMATS
from tests.twins.lattice import on_lattice

ONE_SCALE = (Type.Q4_0, Type.Q5_0, Type.Q8_0, Type.IQ4_NL)
WITH_MINIMUM = (Type.Q4_1, Type.Q5_1)

every_type = pytest.mark.parametrize("kind", [*ONE_SCALE, *WITH_MINIMUM], ids=lambda kind: kind.name)


@every_type
def test_blocks_equal_their_twin(kind: Type) -> None:
    bits = 11
    x, form = hand_made(33), on_lattice(FORMATS[kind], bits)
    stored, values = twin.encode(x, _core.independent(np.ones(N, np.float32)), form)
    encoder = _core.lattice_encoder(int(kind), N, bits)
    assert_rows_equal(encoder, x, stored, stored.shape[1] * 32 // N)
    np.testing.assert_array_equal(encoder.decode(stored, N), values)


@every_type
def test_weights_of_any_codes_and_scales_come_back_to_the_last_bit(kind: Type) -> None:
    """Blocks need not reach the first or the last level, as where more than 32 weights share a scale."""
    rng = np.random.default_rng(1)
    n_blocks, levels = 64, FORMATS[kind].levels
    bound = rng.integers(1, 1 + int(max(-levels.first, levels.last)), (n_blocks, 1))
    codes = levels.round(rng.integers(-bound, bound + 1, (n_blocks, 32)).astype(np.float32))
    if kind in WITH_MINIMUM:
        codes = levels.round(np.abs(codes) + rng.integers(0, 4, (n_blocks, 1)).astype(np.float32))
    scale, minimum = rng.lognormal(-4, 1, (2, n_blocks, 1)).astype(np.float16).astype(np.float32)
    x = (codes * scale - minimum * (kind in WITH_MINIMUM)).reshape(4, -1)
    encoder = _core.lattice_encoder(int(kind), x.shape[1], 24)
    np.testing.assert_array_equal(encoder.decode(encoder.encode(x), x.shape[1]), x)


FLOATS = {Type.F16: 11, Type.BF16: 8}  # bits of their significands
ROUNDED = [
    (kind, floats) for kind in ONE_SCALE for floats in FLOATS if (kind, floats) != (Type.Q8_0, Type.BF16)
]


@pytest.mark.parametrize(("kind", "float_type"), ROUNDED, ids=lambda kind: kind.name)
def test_weights_come_back_from_floats_of_16_bits(kind: Type, float_type: Type) -> None:
    """BF16 has fewer bits than Q8_0, whose codes it leaves open."""
    as_floats, n = _core.ggml_encoder(int(float_type)), 1024

    def rounded(x: np.ndarray) -> np.ndarray:
        return as_floats.decode(as_floats.encode(x), n)

    encoder = _core.ggml_encoder(int(kind))
    x = np.random.default_rng(2).normal(0, 0.02, (64, n)).astype(np.float32)
    of_kind = rounded(encoder.decode(encoder.encode(x), n))
    lattice = _core.lattice_encoder(int(kind), n, FLOATS[float_type])
    np.testing.assert_array_equal(rounded(lattice.decode(lattice.encode(of_kind), n)), of_kind)


def test_types_without_one_scale_have_no_lattice() -> None:
    assert _core.lattice_encoder(int(Type.Q4_K), 256, 24) is None
    assert _core.lattice_encoder(int(Type.F16), 256, 24) is None
