"""`quantize --method best` that is killed, again and again, ends with the bytes of a run that was not."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyquant.data import model_path
from tests.support.command import ENVIRONMENT

WHOLE = 60.0  # seconds that a run may take


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_with_the_same_bytes(held_out_text: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(held_out_text.read_text()[:30_000])
    command = [sys.executable, "-m", "pyquant", "quantize", model_path(), tmp_path / "out.gguf", "Q4_K_M"]
    command += ["--method", "best", "--effort", "high", "--text", text, "--ctx", "128", "--threads", "1"]

    def start() -> subprocess.Popen[bytes]:
        environment = {**ENVIRONMENT, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    begin = time.monotonic()
    assert start().wait(WHOLE) == 0
    took = time.monotonic() - begin
    whole = (tmp_path / "out.gguf").read_bytes()
    (tmp_path / "out.gguf").unlink()
    shutil.rmtree(tmp_path / "cache")  # the file names its statistics, so these have the same place again
    kills = 0
    while True:
        process = start()
        try:
            assert process.wait(took * (0.25 + 0.07 * kills)) == 0
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
            assert kills < 12, "it does not go on"
    assert kills > 1
    assert (tmp_path / "out.gguf").read_bytes() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "out.gguf", "text.txt"]
