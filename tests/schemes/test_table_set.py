"""Tables of a model: which table a tensor has, and that nothing is taken for another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyquant.errors import ConfigError
from pyquant.models.codebook import IQ4_NL_VALUES
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.fold_table import basic, read_table
from pyquant.schemes.settings import make_mode
from pyquant.schemes.table_set import TableSet, read_table_set
from tests.support.models import F32

KIND, OWN = basic().values, np.arange(16, dtype=np.int8)
TABLES = TableSet("t", IQ4_NL_VALUES, {"attn_q": KIND, "blk.1.attn_q.weight": OWN})


@pytest.mark.parametrize(
    ("tensor", "values"),
    [("blk.0.ffn_up.weight", IQ4_NL_VALUES), ("blk.0.attn_q.weight", KIND), ("blk.1.attn_q.weight", OWN)],
)
def test_a_tensor_has_its_own_table_or_its_kinds_or_the_one_for_all(tensor: str, values: np.ndarray) -> None:
    np.testing.assert_array_equal(TABLES.of(tensor), values)


def test_a_table_for_all_is_something() -> None:
    tables = TableSet("t", IQ4_NL_VALUES)
    assert tables
    with pytest.raises(TypeError):
        "anything" in tables  # noqa: B015


@pytest.mark.parametrize("as_path", [str, Path], ids=["str", "Path"])
def test_files_are_read_by_either_sort_of_path(as_path: type, tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(TABLES.to_toml())
    assert read_table_set(as_path(path)).to_json() == TABLES.to_json()
    path.write_text(basic().to_toml())
    assert read_table(as_path(path)).to_json() == basic().to_json()
    assert basic().to_json()["schema"] == "pyquant.table/1"


@pytest.mark.parametrize(
    ("name", "hint"), [("atn_q", "attn_q"), ("blk.77.ffn_up.weight", "blk..*ffn_up.weight")]
)
def test_a_name_that_the_model_lacks_is_refused(generated, tmp_path: Path, name: str, hint: str) -> None:
    path = tmp_path / "t.toml"
    path.write_text(TableSet("t", IQ4_NL_VALUES, {name: KIND}).to_toml())
    with pytest.raises(ConfigError, match=f"tables t: '{name}' is neither .*; did you mean '{hint}'"):
        quantize_model(generated(F32), tmp_path / "out", make_mode({"mode": "table", "table": str(path)}))
