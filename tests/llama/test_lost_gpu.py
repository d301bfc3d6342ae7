"""A GPU that is lost: one line says it, and nothing half-written is left."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pyquant.llama.offload import GPU_LAYERS
from tests.support.command import run
from tests.support.gpu import ENVIRONMENT_OF_GPU, PATIENCE
from tests.support.models import F32


@pytest.fixture(scope="module")
def lost_device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is loaded before libvulkan, so that a device is lost."""
    library = tmp_path_factory.mktemp("lost") / "lost_device.so"
    source = Path(__file__).parents[1] / "support/lost_device.cpp"
    command = [os.environ.get("CXX", "c++"), "-shared", "-fPIC", source, "-o", library, "-ldl"]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no C++ compiler, or no headers of Vulkan")
    return library


@pytest.mark.gpu
@pytest.mark.parametrize("command", ["calibrate", "quantize"])
def test_a_device_that_is_lost_leaves_no_half_written_file(
    gpu: str,
    lost_device: Path,
    generated: Callable[[str], Path],
    stats_of,
    text: Path,
    tmp_path: Path,
    command: str,
) -> None:
    model, output = generated(F32), tmp_path / "out" / "file.gguf"
    output.parent.mkdir()
    more = ["--text", text, "--ctx", "64", "--chunks", "8", "-o", output]
    if command == "quantize":
        more = [output, "--mode", "ggml:Q4_0", "--hessian", stats_of(F32), "--error-propagation", "16"]
    lost = {**ENVIRONMENT_OF_GPU, "LD_PRELOAD": str(lost_device), "LOST_AFTER": "40"}
    done = run(command, model, *more, "-ngl", "all", environment=lost, timeout=PATIENCE)
    assert done.returncode == 1
    assert "Device" in done.stderr.splitlines()[-1]
    assert not output.exists()


@pytest.mark.gpu
@pytest.mark.parametrize("submissions", [0, 1, 2, 5])  # lost while a context is made, cleared, and run
def test_a_device_that_is_lost_is_said_in_one_line(
    gpu: str, lost_device: Path, generated: Callable[[str], Path], text: Path, submissions: int
) -> None:
    lost = {**ENVIRONMENT_OF_GPU, "LD_PRELOAD": str(lost_device), "LOST_AFTER": str(submissions)}
    command = ["perplexity", generated(F32), "--text", text, "--ctx", "64", "--chunks", "64", "-ngl", "all"]
    done = run(*command, environment=lost, timeout=PATIENCE)
    assert done.returncode == 1
    assert re.fullmatch(r"pyquant: .*\.gguf: llama.cpp .*\n", done.stderr)


# A device is lost between a pass and what is done with its keys and values then.
LOST_BETWEEN = """
import ctypes, sys
import numpy as np
from pyquant.errors import ModelFileError
from pyquant.llama.model import Model
tokens = np.arange(8, dtype=np.int32)[None]
with (
    Model(sys.argv[1]) as model,
    model.context(n_ctx=16, n_views=1) as giver,
    model.context(n_ctx=16, n_views=1) as context,
):
    giver.decode(tokens, 0, np.ones(8, bool))
    ctypes.CDLL(None).lose()
    try:
        giver.clear() if sys.argv[2] == "clear" else context.take(giver, 0, 8)
    except ModelFileError as error:
        sys.exit(f"pyquant: {error}")
"""


@pytest.mark.gpu
@pytest.mark.parametrize("what", ["clear", "take"])
def test_a_device_that_is_lost_between_passes_is_said_in_one_line(
    gpu: str, lost_device: Path, generated: Callable[[str], Path], what: str
) -> None:
    lost = {**ENVIRONMENT_OF_GPU, "LD_PRELOAD": str(lost_device), GPU_LAYERS: "all"}
    command = [sys.executable, "-c", LOST_BETWEEN, generated(F32), what]
    done = subprocess.run(command, capture_output=True, text=True, env=lost, timeout=PATIENCE)
    assert done.returncode == 1, done.stderr
    assert re.fullmatch(r"pyquant: .*\.gguf: llama.cpp cannot run it: .*DeviceLost.*\n", done.stderr)
