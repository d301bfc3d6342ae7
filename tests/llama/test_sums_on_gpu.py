"""Hessian statistics by a GPU: those of the CPU, also where it is killed, lacks memory, or is several."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from pyquant import _core
from pyquant.calibration.calibration import Calibration
from pyquant.calibration.panels import full_matrix
from pyquant.llama.model import Model as Running
from pyquant.llama.offload import GPU_LAYERS
from pyquant.rounding.collecting import tokens_of
from pyquant.rounding.staged_context import StagedContext, pieces_of
from tests.support.command import run
from tests.support.gpu import ENVIRONMENT_OF_GPU, PATIENCE, result
from tests.support.models import EXPERTS, F32, Model

BF16 = 4e-3  # what a square of it errs by: the CPU's products, where it has instructions for them


def assert_close(found: Path, expected: Path, tolerance: float) -> None:
    of_both = [
        {tensor.name: tensor.data for tensor in GGUFReader(path).tensors} for path in (found, expected)
    ]
    assert set(of_both[0]) == set(of_both[1])
    for name in set(of_both[0]) - {"checksums"}:
        x, y = (tensors[name].astype(float) for tensors in of_both)
        assert np.linalg.norm(x - y) <= tolerance * np.linalg.norm(y), name


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "sums", "tolerance"),
    [
        (F32, "--sums-on-cpu", 1e-3),
        (F32, "--sums-on-gpu", BF16),
        (EXPERTS, "--sums-on-gpu", 4e-3),  # by F16 weights the CPU multiplies F16 activations
    ],
)
def test_statistics_are_the_cpus(
    gpu: str,
    generated: Callable[[str], Path],
    text: Path,
    tmp_path: Path,
    name: str,
    sums: str,
    tolerance: float,
) -> None:
    of_cpu, of_gpu = tmp_path / "cpu.gguf", tmp_path / "gpu.gguf"
    settings = ["--text", text, "--ctx", "64", "--chunks", "4"]
    made = result("calibrate", generated(name), "-o", of_cpu, *settings, layers=0)
    assert made["copying_seconds"] == made["waiting_seconds"] == 0
    made = result("calibrate", generated(name), "-o", of_gpu, *settings, sums, layers="all")
    assert made["waiting_seconds"] > 0
    assert (made["copying_seconds"] > 0) == ((name, sums) != (F32, "--sums-on-gpu"))
    assert_close(of_gpu, of_cpu, tolerance)


@pytest.fixture(scope="module")
def summed_up_there(
    gpu: str, generated: Callable[[str], Path], text: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """HESSIAN of 4 chunks, all of which it keeps, and what was said meanwhile."""
    stats = tmp_path_factory.mktemp("summed") / "stats.gguf"
    settings = ["--text", text, "--ctx", "64", "--chunks", "4", "--random", "0", "-ngl", "all"]
    done = run("calibrate", generated(F32), "-o", stats, *settings, environment=ENVIRONMENT_OF_GPU)
    assert done.returncode == 0, done.stderr
    return stats, done.stderr


@pytest.mark.gpu
def test_products_of_a_gpu_are_exact(summed_up_there: tuple[Path, str]) -> None:
    sums = {tensor.name: tensor.data for tensor in GGUFReader(summed_up_there[0]).tensors}
    for name in (name for name in sums if name.endswith(".hessian")):
        squares = sums[name.replace(".hessian", ".in_sum2")].reshape(-1)
        diagonal = full_matrix(sums[name], len(squares)).diagonal()
        np.testing.assert_allclose(diagonal, squares, rtol=1e-5)


@pytest.mark.gpu
def test_sums_of_a_gpu_are_those_of_a_cpu_in_f32(
    summed_up_there: tuple[Path, str], generated: Callable[[str], Path], tmp_path: Path
) -> None:
    calibration = Calibration.read(summed_up_there[0])
    found = {tensor.name: tensor.data for tensor in GGUFReader(summed_up_there[0]).tensors}

    def distance(name: str, x: np.ndarray, *, bf16: bool) -> float:
        n = x.shape[1]
        sums = _core.sum_rows(np.ascontiguousarray(x), 1.0, bf16=bf16, n_threads=2)
        ours, theirs = full_matrix(found[f"{name}.hessian"], n), full_matrix(sums[n:], n)
        return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))

    with Running(generated(F32)) as running:
        pieces, all_tokens = pieces_of(tokens_of(calibration, running)), np.ones(64, bool)
        with (
            StagedContext(running, calibration.matrices, pieces, 2, wanted=all_tokens) as passing,
            tempfile.TemporaryFile(dir=tmp_path) as file,
        ):
            largest = max(stage.n_bytes for stage in passing.stages)
            states = _core.PassStates(1, n_bytes=largest, memory=largest, file=file.fileno())
            for number, stage in enumerate(passing.stages):
                x = passing.run(0, None, number, states, 0)
                assert distance(stage.matrices[0], x, bf16=False) < 1e-4
                if _core.HAS_BF16_PRODUCTS:  # what else sums on the CPU differ by
                    assert 1e-4 < distance(stage.matrices[0], x, bf16=True) < BF16


@pytest.mark.gpu
def test_how_long_a_gpu_waits_is_said(summed_up_there: tuple[Path, str]) -> None:
    said = summed_up_there[1]
    assert re.search(r"the GPU waited 0\.00 % of the time for copies of activations, .* % for sums\n", said)


@pytest.mark.gpu
def test_a_product_that_is_not_exact_is_the_cpus(gpu: str, text: Path, tmp_path: Path) -> None:
    def hardly_any(name: str, x: np.ndarray) -> np.ndarray:  # below what F16 has digits for
        return x * np.float32(1e-7) if name == "blk.0.attn_norm.weight" else x

    model, made = Model(change=hardly_any).write(tmp_path / "model.gguf"), tmp_path / "stats.gguf"
    in_f16 = {name: value for name, value in ENVIRONMENT_OF_GPU.items() if name != "GGML_VK_DISABLE_F16"}
    settings = ["--text", text, "--ctx", "64", "--chunks", "4", "--random", "0", "-ngl", "all"]
    done = run("calibrate", model, "-o", made, *settings, environment=in_f16, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the GPU's products are not exact enough: the CPU makes others\n") == 1
    tensors = {tensor.name: tensor.data for tensor in GGUFReader(made).tensors}
    squares = tensors["blk.0.attn_q.weight.in_sum2"].reshape(-1)
    diagonal = full_matrix(tensors["blk.0.attn_q.weight.hessian"], len(squares)).diagonal()
    np.testing.assert_allclose(diagonal, squares, rtol=2 * BF16)


# Four batches, with a checkpoint behind each; where it is to end early it kills itself behind the third.
CALIBRATE = """
import os, signal, sys
import pyquant.llama.chunks
pyquant.llama.chunks.BATCH = 256
from pyquant.calibration.calibrate import calibrate_model
model, text, output, how = sys.argv[1:]
def progress(done, total):
    if done == 12 and how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
made = calibrate_model(
    model, [text], output, checkpoint_seconds=1e9 if how == "whole" else 0, n_ctx=64, n_chunks=16, random=0,
    progress=progress,
)
print(made.resumed_at)
"""


@pytest.mark.gpu
def test_sums_on_a_gpu_go_on_to_the_same_file(
    gpu: str, generated: Callable[[str], Path], text: Path, tmp_path: Path
) -> None:
    there = {**ENVIRONMENT_OF_GPU, GPU_LAYERS: "all"}

    def calibrate(output: Path, how: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", CALIBRATE, generated(F32), text, output, how]
        return subprocess.run(command, capture_output=True, text=True, env=there, timeout=PATIENCE)

    whole, resumed = tmp_path / "whole.gguf", tmp_path / "resumed.gguf"
    assert calibrate(whole, "whole").stdout == "0\n"
    assert calibrate(resumed, "killed").returncode == -signal.SIGKILL
    assert not resumed.exists()
    assert calibrate(resumed, "resumed").stdout == "2\n"
    assert resumed.read_bytes() == whole.read_bytes()


@pytest.mark.gpu
def test_sums_that_a_gpu_has_no_memory_for_are_the_cpus(gpu: str, text: Path, tmp_path: Path) -> None:
    model, made, said = Model(n_ff=8192, n_layer=1).write(tmp_path / "wide.gguf"), {}, {}
    little = {**ENVIRONMENT_OF_GPU, "GGML_VK_FORCE_MAX_BUFFER_SIZE": "250000000"}  # a sum takes 268 MB
    for place in ("cpu", "gpu"):
        made[place] = tmp_path / f"{place}.gguf"
        command = ["calibrate", model, "-o", made[place], f"--sums-on-{place}", "-ngl", "all"]
        settings = ["--text", text, "--ctx", "64", "--chunks", "4"]
        done = run(*command, *settings, environment=little, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        said[place] = "the GPU has no memory for all sums: the CPU makes others" in done.stderr
    assert said == {"cpu": False, "gpu": True}
    assert_close(made["gpu"], made["cpu"], BF16)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "shares", [["--tensor-split", "3,1"], ["--main-gpu", "1"], []], ids=["split", "the second", "free memory"]
)
def test_several_gpus(
    gpu: str, generated: Callable[[str], Path], text: Path, tmp_path: Path, shares: list[str]
) -> None:
    two = {**ENVIRONMENT_OF_GPU, "GGML_VK_VISIBLE_DEVICES": "0,0"}
    of_cpu, of_gpus = tmp_path / "cpu.gguf", tmp_path / "gpus.gguf"
    settings = ["--text", text, "--ctx", "64", "--chunks", "4"]
    result("calibrate", generated(F32), "-o", of_cpu, *settings, layers=0)
    command = ["calibrate", generated(F32), "-o", of_gpus, *settings, "-ngl", "all", *shares, "--json"]
    done = run(*command, environment=two, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["copying_seconds"] == 0  # all are summed up where they are
    assert_close(of_gpus, of_cpu, BF16)
