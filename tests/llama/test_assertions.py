"""Failed assertions of GGML: errors where one thread computes, and the end with a line where several do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.families import FAMILIES

# Learned positions end at 256: GGML asserts, in whatever thread looks the row up, that there is such a row.
PROGRAM = """
import sys
import numpy as np
from pyquant.errors import ModelFileError
from pyquant.llama.model import Model
print("before")  # Python holds it back, as nobody reads it line by line
with Model(sys.argv[1]) as model, model.context(n_ctx=64, threads=int(sys.argv[2])) as context:
    n = 8
    try:
        context.run(np.ones(n, np.int32), np.arange(n) + 300, np.zeros(n, np.int32), np.ones(n, bool))
    except ModelFileError as error:
        print("error:", error)
"""


def run_beyond_positions(folder: Path, threads: int) -> tuple[Path, subprocess.CompletedProcess[str]]:
    path = FAMILIES["GPT-2"].write(folder / "caf\udce9.gguf")  # not UTF-8
    command = [sys.executable, "-c", PROGRAM, path, str(threads)]
    return path, subprocess.run(command, capture_output=True, text=True, errors="surrogateescape", timeout=60)


def test_what_one_thread_computes_is_an_error(tmp_path: Path) -> None:
    _, ran = run_beyond_positions(tmp_path, 1)
    assert ran.returncode == 0, ran.stderr
    assert "llama.cpp cannot run it: ops.cpp:" in ran.stdout


@pytest.mark.parametrize("threads", [2, 5])
def test_what_several_threads_compute_ends_with_a_line(tmp_path: Path, threads: int) -> None:
    path, ran = run_beyond_positions(tmp_path, threads)
    assert ran.returncode == 1
    assert ran.stdout == "before\n"
    assert ran.stderr.startswith(f"pyquant: {path}: llama.cpp cannot run it: ops.cpp:")
    assert "GGML_ASSERT(i01 >= 0 && i01 < ne01)" in ran.stderr
    assert ran.stderr.endswith("`pyquant info` prints what a report needs\n")
    assert ran.stderr.count("\n") == 1
