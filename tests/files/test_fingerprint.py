"""A file's fingerprint: what changes it, and how little is read for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyquant.files.fingerprint import BEGINNING, BLOCK, fingerprint


@pytest.mark.parametrize("at", [0, BEGINNING - 1, BEGINNING, BEGINNING + 5 * BLOCK + 7])
def test_every_byte_of_a_file_that_is_not_large_counts(tmp_path: Path, at: int) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(BEGINNING + 6 * BLOCK))
    before = fingerprint([path])
    with path.open("r+b") as file:
        os.pwrite(file.fileno(), b"x", at)
    assert fingerprint([path]) != before


def test_a_large_file_is_read_in_part(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    found = set()
    for size in (1 << 36, (1 << 36) + 1):  # 64 GiB, nothing of which is stored
        path.touch()
        os.truncate(path, size)
        found.add(fingerprint([path]))
    with path.open("r+b") as file:  # what is written anew a block of more than a thousandth is seen
        os.pwrite(file.fileno(), b"x" * (1 << 27), 1 << 35)
    found.add(fingerprint([path]))
    assert len(found) == 3


def test_shards_are_told_from_their_bytes_in_a_row(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "ab"]
    found = set()
    for sizes in ((1, 2), (2, 1)):
        for path, size in zip(paths, sizes):
            path.write_bytes(bytes(size))
        found.add(fingerprint(paths))
    assert len(found) == 2
