"""Quantized files of every family: their codes are counted, they are packed and unpacked, and decoded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from gguf.quants import dequantize

from pyquant.inspect.histogram import count_codes
from pyquant.models.model_file import ModelFile
from pyquant.models.pqz.pack import pack_model
from pyquant.models.pqz.unpack import unpack_model
from pyquant.rounding.dequantize import dequantize_model
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.families import FAMILIES

COUNTED = {"Q4_0", "Q8_0", "IQ4_NL"}


@pytest.mark.parametrize("name", FAMILIES)
def test_all_codes_are_counted(family: Callable[[str], Path], name: str, tmp_path: Path) -> None:
    quantize_model(family(name), tmp_path / "q.gguf", make_mode({"mode": "q4_0"}), threads=1)
    coded = {t.name: t.n_weights for t in ModelFile(tmp_path / "q.gguf").tensors if t.type.name in COUNTED}
    assert {
        counts.name: counts.n_codes for counts in count_codes(tmp_path / "q.gguf", threads=1).tensors
    } == coded
    assert coded


@pytest.mark.parametrize("name", FAMILIES)
def test_they_are_packed_and_decoded(family: Callable[[str], Path], name: str, tmp_path: Path) -> None:
    quantized, packed = tmp_path / "quantized.gguf", tmp_path / "packed.pqz"
    quantize_model(family(name), quantized, make_mode({"mode": "ggml:Q4_K_M"}), threads=1)
    pack_model(quantized, packed, threads=1)
    unpack_model(packed, tmp_path / "unpacked.gguf", threads=1)
    assert (tmp_path / "unpacked.gguf").read_bytes() == quantized.read_bytes()

    floats = tmp_path / "floats.gguf"
    dequantize_model(quantized, floats, "F32", threads=1)
    blocks = {tensor.name: tensor for tensor in GGUFReader(quantized).tensors}
    for tensor in GGUFReader(floats).tensors:
        expected = dequantize(blocks[tensor.name].data, blocks[tensor.name].tensor_type)
        np.testing.assert_array_equal(tensor.data, expected.reshape(tensor.data.shape))
