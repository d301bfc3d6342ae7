"""Rounding in order that fails, is stopped or is killed."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pyquant.calibration.calibrate import calibrate_model
from pyquant.data import model_path
from pyquant.errors import ModelFileError
from pyquant.models.tensor import Tensor
from tests.support.command import ENVIRONMENT, run
from tests.support.error_propagation import error_propagation
from tests.support.models import F32


def test_a_failure_ends_both_passes(generated, stats_of) -> None:
    def fail(tensor: Tensor, weights: np.ndarray | None) -> np.ndarray:
        if "ffn" in tensor.name:
            raise ModelFileError("no such weights")
        return tensor.weights()

    with pytest.raises(ModelFileError, match="no such weights"):
        error_propagation(generated(F32), stats_of(F32), fail)
    with pytest.raises(ValueError, match="broadcast"):
        error_propagation(generated(F32), stats_of(F32), lambda tensor, weights: tensor.weights()[:3])


def test_inputs_that_are_not_finite_are_passed_over(generated, stats_of) -> None:
    def explode(tensor: Tensor, weights: np.ndarray | None) -> np.ndarray:
        assert weights is None or np.array_equal(weights, tensor.weights())
        return np.full_like(tensor.weights(), 3e38)

    told: list[str] = []
    error_propagation(generated(F32), stats_of(F32), explode, tell=told.append)
    (line,) = (line for line in told if "not finite" in line)
    assert re.fullmatch(
        r"blk\.0\.\w+\.weight: what enters is not finite, or too large, of some tokens: they are passed over",
        line,
    )


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.1, 0.3, 1])
def test_ctrl_c(held_out_text: Path, tmp_path: Path, seconds: float) -> None:
    source, stats, out = model_path(), tmp_path / "stats", tmp_path / "out.gguf"
    calibrate_model(source, [held_out_text], stats, n_ctx=256, n_chunks=32, threads=1)
    arguments = [
        "quantize",
        source,
        out,
        "--mode",
        "ggml:Q4_0",
        "--hessian",
        stats,
        "--error-propagation",
        32,
    ]
    command = [sys.executable, "-m", "pyquant", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=ENVIRONMENT)
    while process.poll() is None and not (tmp_path / ".out.gguf.partial").exists():
        time.sleep(0.01)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    # Complete, or not there; the signal may also come when all is done, on Python's way out.
    assert out.exists() or process.returncode == 130
    assert b"Traceback" not in told
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("stats", "out.gguf")] == []


@pytest.mark.ci
def test_killed_it_leaves_what_the_next_run_replaces(generated, stats_of, made, tmp_path: Path) -> None:
    out, common = tmp_path / "out.gguf", ["--mode", "ggml:IQ4_NL", "--hessian", stats_of(F32)]
    arguments = [
        "quantize",
        generated(F32),
        out,
        *common,
        "--error-propagation",
        32,
        "--memory",
        "1kB",
        "--threads",
        1,
    ]
    command = [sys.executable, "-m", "pyquant", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=ENVIRONMENT)
    said = process.stderr.readline().decode()  # the sizes: what is kept of the pieces is on disk after that
    time.sleep(0.05)
    process.kill()
    process.communicate(timeout=60)
    assert "on disk" in said
    assert not out.exists()
    assert [path.name for path in tmp_path.iterdir()] == [".out.gguf.partial"]
    assert run(*arguments).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out.gguf"]
    assert out.read_bytes() == made(F32).read_bytes()
