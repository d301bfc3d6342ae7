"""Hashes of files, made in threads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pyquant.files.sha256 import SourceHash

INTERRUPTED = """
import sys, threading
from pathlib import Path
from pyquant.files.sha256 import OutputHash, SourceHash
start = threading.Thread.start
def interrupted(thread):
    start(thread)
    raise KeyboardInterrupt
threading.Thread.start = interrupted
with open(sys.argv[1]) as file, {what}:
    pass
"""


@pytest.mark.parametrize("what", ["OutputHash(file.fileno())", "SourceHash([Path('/dev/zero')])"])
def test_ctrl_c_while_the_thread_is_started_ends_the_process(what: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    script = [sys.executable, "-c", INTERRUPTED.format(what=what), path]
    done = subprocess.run(script, capture_output=True, text=True, timeout=30, check=False)
    assert "KeyboardInterrupt" in done.stderr


def test_what_stops_the_thread_is_raised_where_the_hash_is_asked_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with SourceHash([tmp_path / "missing"]) as source_hash, pytest.raises(FileNotFoundError):
        source_hash.result()
    assert capfd.readouterr().err == ""
