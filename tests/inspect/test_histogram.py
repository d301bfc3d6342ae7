"""Codes of a model that is seen through a mode are those of the file that the mode makes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyquant import _core
from pyquant.errors import ConfigError, ModelFileError
from pyquant.inspect.code_counts import CodeCounts
from pyquant.inspect.histogram import count_codes
from pyquant.models.codebook import CODEBOOKS, IQ4_NL_VALUES
from pyquant.models.tensor_type import TensorType as Type
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from pyquant.schemes.table_set import TableSet
from tests.support.models import F32


def test_tensors_are_counted_by_their_own_tables(generated, tmp_path: Path) -> None:
    own = np.arange(-120, 136, 16).astype(np.int8)
    tables, out = tmp_path / "tables.toml", tmp_path / "out.gguf"
    tables.write_text(TableSet("t", IQ4_NL_VALUES, {"attn_q": own}).to_toml())
    settings = {"mode": "table", "table": str(tables)}
    packed = make_mode(settings | {"store": "q4_t"})
    quantize_model(generated(F32), out, packed)
    through, written = count_codes(generated(F32), packed), count_codes(out)
    assert through.to_json()["totals"] == written.to_json()["totals"]
    assert len(through.totals) == 2 + any(total.codebook.name == "Q8_0" for total in through.totals)
    stock = count_codes(generated(F32), make_mode(settings))
    by_name = {counts.name: counts for counts in stock.tensors}
    np.testing.assert_array_equal(by_name["blk.0.attn_q.weight"].codebook.values, own)
    np.testing.assert_array_equal(by_name["blk.0.attn_k.weight"].codebook.values, IQ4_NL_VALUES)
    for counts in stock.tensors:
        (twin,) = (its for its in through.tensors if its.name == counts.name)
        np.testing.assert_array_equal(counts.counts, twin.counts)


def test_a_quantized_model_needs_no_mode(generated, tmp_path: Path) -> None:
    quantize_model(generated(F32), tmp_path / "out.gguf", make_mode({"mode": "q4_0"}))
    with pytest.raises(ConfigError, match="is quantized: its own codes are counted without a mode"):
        count_codes(tmp_path / "out.gguf", make_mode({"mode": "q4_0", "requantize": True}))


def test_a_model_without_tensors_has_no_codes(tmp_path: Path) -> None:
    header = _core.Gguf()
    header.set_text("general.architecture", "llama")
    (tmp_path / "empty.gguf").write_bytes(header.header())
    with pytest.raises(ModelFileError, match=r"empty\.gguf: has no tensors$"):
        count_codes(tmp_path / "empty.gguf")


def test_numbers_of_a_tensor_follow_from_its_counts() -> None:
    counts, runs = np.zeros(16, np.uint64), np.zeros(16, np.uint64)
    counts[[1, 8, 15]] = 8, 4, 4  # values -7, 0 and 7
    runs[[0, 2]] = 3, 1
    counted = CodeCounts("a", CODEBOOKS[Type.Q4_0], counts, runs)
    assert counted.isolated_share == 0.75
    found = counted.to_json()
    assert found["n_codes"] == 16
    assert found["entropy"] == 1.5
    assert found["entropy_bits_per_weight"] == 2.0  # and 16 bits for each 32 codes
    assert (found["zero_code"], found["zero_value"], found["zero_share"]) == (8, 0, 0.25)
    assert found["codes"][1] == {"code": 1, "value": -7, "count": 8, "share": 0.5}
    assert found["zero_runs"]["shares"][:4] == [0.75, 0, 0.25, 0]
    assert found["zero_runs"]["geometric"][:3] == [0.75, 0.1875, 0.046875]
