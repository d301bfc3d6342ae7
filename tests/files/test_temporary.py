"""Folders for temporary files go away, also those of processes that were killed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pyquant.errors import OutputError
from pyquant.files.temporary import PREFIX, temporary_folder

KILLED = """
import os, signal
from pyquant.files.temporary import temporary_folder
with temporary_folder() as folder:
    (folder / "tried.pqz").write_bytes(bytes(1000))
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_the_next_run_removes_what_a_killed_one_left(place: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED], check=False)
    (left,) = place.iterdir()
    assert (left / "tried.pqz").exists()
    with temporary_folder() as mine:
        assert list(place.iterdir()) == [mine]
    assert list(place.iterdir()) == []


def test_what_is_used_or_another_s_is_left_alone(place: Path) -> None:
    mine = place / f"{PREFIX}mine"  # by its name alone
    mine.mkdir()
    (mine / "precious").write_text("precious")
    (place / "target").mkdir()
    (place / f"{PREFIX}link").symlink_to(place / "target")
    with temporary_folder() as first, temporary_folder() as second:
        assert first.exists()
        assert second.exists()
    assert {path.name for path in place.iterdir()} == {mine.name, "target", f"{PREFIX}link"}
    assert (mine / "precious").exists()


def test_no_place_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")
    with pytest.raises(OutputError, match="TMPDIR=FOLDER names another place"), temporary_folder():
        pass
