"""Functions take a model by its path, as str or Path, or opened; and other files by either sort of path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pyquant
from pyquant.models.model_file import ModelFile, open_model
from pyquant.models.pqz.pqz_file import PqzFile
from tests.support.imatrix import legacy_imatrix

BASE = "f16, experts"


def test_an_opened_model_is_handed_on(small_model: Path) -> None:
    opened = ModelFile(small_model)
    assert open_model(opened) is opened
    assert open_model(str(small_model)).path == small_model


@pytest.mark.parametrize("given", [str, Path, ModelFile], ids=["str", "Path", "ModelFile"])
def test_every_function_takes_a_model_by_path_or_opened(
    generated: Callable[[str], Path], tmp_path: Path, given: Callable[[Path], Any]
) -> None:
    base, q4_t, stock = generated(BASE), tmp_path / "q4_t.gguf", tmp_path / "stock.gguf"
    mode = pyquant.make_mode({"mode": "q4_0", "store": "q4_t"})
    assert pyquant.quantize_model(given(base), q4_t, mode).source == str(base)
    unpacked = pyquant.unpack_q4_t(given(q4_t), stock)
    assert unpacked.to_json()["schema"] == "pyquant.unpack_q4_t/1"
    assert (unpacked.type, unpacked.output_bytes) == ("Q4_0", stock.stat().st_size)
    assert pyquant.model_info(given(stock)).to_json()["schema"] == "pyquant.info/2"
    assert pyquant.count_codes(given(stock)).model == str(stock)
    assert pyquant.measure_error(given(base), given(stock)).base == str(base)
    assert pyquant.pack_model(given(stock), tmp_path / "stock.pqz").source == str(stock)
    both = pyquant.quantize_to_pqz(given(base), tmp_path / "direct.pqz", pyquant.make_mode({"mode": "q4_0"}))
    assert both.pqz.output_bytes == (tmp_path / "direct.pqz").stat().st_size
    patched = tmp_path / "patched.gguf"
    pyquant.quantize_patched(given(base), patched, pyquant.make_mode({"mode": "q4_0"}))
    assert pyquant.unpack_model(PqzFile(tmp_path / "stock.pqz"), tmp_path / "again.gguf").sha256


@pytest.mark.parametrize("as_path", [str, Path], ids=["str", "Path"])
def test_other_files_are_read_by_either_sort_of_path(
    generated: Callable[[str], Path], tmp_path: Path, as_path: type
) -> None:
    base = generated(BASE)
    legacy_imatrix(base, tmp_path / "imatrix.dat")
    assert pyquant.measure_error(base, base, imatrix=as_path(tmp_path / "imatrix.dat")).identical
    (tmp_path / "mode.toml").write_text("mode = 'q8_0'\n")
    assert pyquant.read_config(as_path(tmp_path / "mode.toml")) == {"mode": "q8_0"}
    study = f"models = ['{base}']\nmeasure = ['codes']\n[[quantizer]]\nmode = 'q8_0'\n"
    (tmp_path / "study.toml").write_text(study)
    assert pyquant.read_study(as_path(tmp_path / "study.toml")).models == [base]


def test_experts_of_a_pqz_file_are_its_experts(generated: Callable[[str], Path], tmp_path: Path) -> None:
    """Each expert's matrix is a part of a tensor, and was once read from the tensor's beginning."""
    base, pqz = generated(BASE), tmp_path / "base.pqz"
    pyquant.pack_model(base, pqz)
    legacy_imatrix(base, tmp_path / "imatrix.dat")
    mode = pyquant.make_mode({"mode": "q4_0", "hessian": str(tmp_path / "imatrix.dat")})
    made = []
    for source in (base, pqz):
        pyquant.quantize_model(source, tmp_path / f"{source.stem}{source.suffix}.out", mode)
        made.append(ModelFile(tmp_path / f"{source.stem}{source.suffix}.out"))
    for tensor, of_pqz in zip(made[0].tensors, made[1].tensors):
        assert tensor.data() == of_pqz.data(), tensor.name


def test_codes_of_tables_in_a_pqz_file_are_unpacked(generated: Callable[[str], Path], tmp_path: Path) -> None:
    mode = pyquant.make_mode({"mode": "q4_0", "store": "q4_t"})
    pyquant.quantize_model(generated(BASE), tmp_path / "q4_t.gguf", mode)
    pyquant.pack_model(tmp_path / "q4_t.gguf", tmp_path / "q4_t.pqz")
    for name in ("q4_t.gguf", "q4_t.pqz"):
        pyquant.unpack_q4_t(tmp_path / name, tmp_path / f"{name}.stock")
    assert (tmp_path / "q4_t.gguf.stock").read_bytes() == (tmp_path / "q4_t.pqz.stock").read_bytes()
