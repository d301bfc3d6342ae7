"""Signals while llama.cpp computes, where a shell ignores Ctrl-C for what it runs in the background."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from pyquant import data


def test_in_the_background_ctrl_c_is_ignored_and_sigterm_ends(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the rain in the hen then tin ant " * 50_000)
    process = subprocess.Popen(
        [sys.executable, "-m", "pyquant", "perplexity", data.model_path(), "--text", text],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert process.stderr is not None
    assert "chunks/s" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert "chunks/s" in process.stderr.readline()  # it goes on
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert said.splitlines()[-1] == "pyquant: terminated; nothing half-written is left"
