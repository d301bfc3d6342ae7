"""Arrays in npz files, whole and broken."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from pyquant.files.npz import read_npz


def written(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def npy(array: object) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array))
    return file.getvalue()


def test_arrays_are_read(tmp_path: Path) -> None:
    path = written(tmp_path / "a.npz", {"x.npy": npy([1.5, 2]), "y.npy": npy(3)})
    found = read_npz(path)
    assert {name: its.tolist() for name, its in found.items()} == {"x": [1.5, 2], "y": 3}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x93NUMPY", npy([1])[:40], npy([1]).replace(b"'shape': (1,)", b"'shape': (9,)"),
        npy([1]).replace(b"(1,), }" + 11 * b" ", b"(99999999999999,),}"), npy([1]).replace(b"<i8", b"|O8"),
        npy([1]).replace(b"{", b"("), npy([1]).replace(b"}", b"{"),
    ],
)  # fmt: skip
def test_a_broken_array_is_refused(content: bytes, tmp_path: Path) -> None:
    path = written(tmp_path / "a.npz", {"x.npy": content})
    with pytest.raises(ValueError, match=r"."):
        read_npz(path)["x"] + 1


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    for content in (b"", npy([1]), b"PK\x03\x04"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"."):
            read_npz(path)
    with pytest.raises(OSError, match="none"):
        read_npz(tmp_path / "none.npz")
