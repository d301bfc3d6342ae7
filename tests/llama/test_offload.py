"""Layers on a GPU: which are asked for, what is refused, and that a device gives what the CPU gives."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader

from pyquant import _core, data
from pyquant.calibration.calibration import Calibration
from pyquant.calibration.panels import full_matrix
from pyquant.errors import ConfigError
from pyquant.llama.model import Model as Running
from pyquant.llama.offload import ALL, GPU_LAYERS, MAIN_GPU, ON_CPU, TENSOR_SPLIT, Offload
from pyquant.rounding.collecting import tokens_of
from pyquant.rounding.staged_context import StagedContext, pieces_of
from tests.support.command import ENVIRONMENT, run
from tests.support.families import FAMILIES
from tests.support.models import EXPERTS, F32, Model

# Vulkan leaves drivers out that compute on the CPU, unless a device is named. F16 is left out as the CPU
# computes in F32: on an F16 model statistics else differ by 1 %.
ENVIRONMENT_OF_GPU = {**ENVIRONMENT, "GGML_VK_VISIBLE_DEVICES": "0", "GGML_VK_DISABLE_F16": "1"}
BF16 = 4e-3  # what a square of it errs by: the CPU's products, where it has instructions for them
PATIENCE = 500  # seconds: a CPU that plays a GPU compiles every shader first


@pytest.fixture(scope="module")
def gpu() -> str:
    """The first device's name."""
    devices = json.loads(run("info", "--json", environment=ENVIRONMENT_OF_GPU).stdout)["devices"]
    if not devices:
        pytest.skip("no GPU: `make GPU=vulkan test-gpu` with a driver, such as Debian's mesa-vulkan-drivers")
    return devices[0]["name"]


def result(*arguments: object, layers: int | str) -> dict[str, Any]:
    done = run(*arguments, "--gpu-layers", layers, "--json", environment=ENVIRONMENT_OF_GPU, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_settings_have_llama_cpps_names_and_values() -> None:
    assert Offload.read({}) == ON_CPU
    assert Offload.read({GPU_LAYERS: "all"}) == Offload(ALL)
    asked = {GPU_LAYERS: "12", MAIN_GPU: "1", TENSOR_SPLIT: "3,1"}
    assert Offload.read(asked) == Offload(12, 1, (3.0, 1.0))


@pytest.mark.parametrize("name", [GPU_LAYERS, MAIN_GPU, TENSOR_SPLIT])
def test_a_setting_that_is_no_number_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^\S+ \({name}\): 'some' is not a .*number from 0"):
        Offload.read({name: "some"})


def test_without_a_device_an_option_is_refused_and_a_variable_is_left_out(
    small_model: Path, text: Path
) -> None:
    if _core.build_info()["gpu_backends"]:
        pytest.skip("this build has a backend for GPUs")
    command = ["perplexity", small_model, "--text", text, "--ctx", "64", "--chunks", "1"]
    refused = run(*command, "-ngl", "all")
    assert refused.returncode == 2
    assert refused.stderr == (
        "pyquant: gpu-layers: this pyquant is built for the CPU alone; `make GPU=vulkan` (cuda, metal, hip) "
        "builds another\n"
    )
    left_out = run(*command, environment={**ENVIRONMENT, GPU_LAYERS: "all"})
    assert left_out.returncode == 0
    assert f"{GPU_LAYERS} is left out: this pyquant is built for the CPU alone" in left_out.stderr


@pytest.mark.gpu
def test_info_lists_devices(gpu: str) -> None:
    assert f"\n{gpu} " in run("info", environment=ENVIRONMENT_OF_GPU).stdout


@pytest.mark.gpu
@pytest.mark.parametrize("layers", [2, "all"])
def test_perplexity_is_the_cpus(gpu: str, held_out_text: Path, layers: int | str) -> None:
    command = ["perplexity", data.model_path(), "--text", held_out_text, "--ctx", "64", "--chunks", "2"]
    expected, found = (result(*command, layers=n)["results"][0]["ppl"] for n in (0, layers))
    assert found == pytest.approx(expected, rel=1e-4)  # 1e-5 with F16 arithmetic
    assert found != expected  # computed elsewhere


@pytest.mark.gpu
@pytest.mark.parametrize(
    "mode", [["Q4_0"], ["Q4_K_M"], ["--mode", "q8_table", "--table", "balanced", "--store", "q4_t"]]
)
def test_kld_is_the_cpus(gpu: str, held_out_text: Path, mode: list[str], tmp_path: Path) -> None:
    quantized = tmp_path / "quantized.gguf"
    assert run("quantize", data.model_path(), quantized, *mode).returncode == 0
    settings = ["--text", held_out_text, "--ctx", "64", "--chunks", "4"]
    command = ["compare", data.model_path(), quantized, *settings]
    of_cpu, of_gpu = (result(*command, layers=n) for n in (0, "all"))
    expected, found = (compared["candidates"][0]["kld"] for compared in (of_cpu, of_gpu))
    # The CPU rounds activations to 8 bits where weights are quantized, and a device need not.
    assert found["mean"] == pytest.approx(expected["mean"], abs=expected["error"])
    assert of_cpu["noise_floor"]["kld"] != of_gpu["noise_floor"]["kld"] < 1e-5


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


@pytest.mark.gpu
def test_greedy_text_is_the_cpus(gpu: str) -> None:
    command = ["generate", data.model_path(), "-p", "The ", "--temperature", "0", "--max-tokens", "12"]
    expected, found = (result(*command, layers=n) for n in (0, "all"))
    assert found["text"] == expected["text"]


@pytest.mark.gpu
def test_tables_are_computed_on_the_cpu(gpu: str, held_out_text: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.gguf"
    mode = ["--mode", "q8_table", "--table", "balanced", "--store", "q4_t"]
    made = run("quantize", data.model_path(), table, *mode)
    assert made.returncode == 0, made.stderr
    command = ["perplexity", table, "--text", held_out_text, "--ctx", "64", "--chunks", "1"]
    said = run(*command, "-ngl", "all", environment=ENVIRONMENT_OF_GPU).stderr
    assert "table.gguf: tensors of type Q4_T are computed on the CPU" in said


@pytest.mark.gpu
def test_what_a_device_has_no_room_for(gpu: str, small_model: Path, text: Path) -> None:
    little = {**ENVIRONMENT_OF_GPU, "GGML_VK_FORCE_MAX_BUFFER_SIZE": "1000"}
    done = run("perplexity", small_model, "--text", text, "--ctx", "64", "-ngl", "all", environment=little)
    assert done.returncode == 1
    assert done.stderr.endswith("; fewer --gpu-layers take less memory of the GPU\n")


@pytest.mark.gpu
def test_devices_that_are_not_there(gpu: str, small_model: Path, text: Path) -> None:
    command = ["perplexity", small_model, "--text", text, "-ngl", "all"]
    done = run(*command, "--main-gpu", "9", environment=ENVIRONMENT_OF_GPU)
    assert (done.returncode, done.stderr) == (
        2,
        "pyquant: main-gpu: 9: there are 1, from 0 on; `pyquant info` lists them\n",
    )
    none = {**ENVIRONMENT_OF_GPU, "VK_ICD_FILENAMES": "/none", "VK_DRIVER_FILES": "/none"}
    done = run(*command, environment=none)
    assert done.returncode == 2
    assert done.stderr.startswith("pyquant: gpu-layers: VULKAN finds no device; install its driver")


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "more", "within", "alike"),
    [
        (F32, [], "blk.", 0.98),
        (EXPERTS, [], "blk.", 0.9),
        # What is propagated are errors of 5 %: 2e-6 of noise on what enters changes a third of later codes.
        (F32, ["--error-propagation", 16], "blk.0.attn", 0.98),
    ],
)
def test_passes_of_rounding_stop_and_go_on_there(
    gpu: str,
    generated: Callable[[str], Path],
    text: Path,
    tmp_path: Path,
    name: str,
    more: list[object],
    within: str,
    alike: float,
) -> None:
    model, diagonals = generated(name), tmp_path / "diagonals.gguf"
    settings = ["--text", text, "--ctx", "64", "--chunks", "16", "--imatrix-only"]
    assert run("calibrate", model, "-o", diagonals, *settings).returncode == 0
    paths = []
    for layers in (0, "all"):
        paths.append(tmp_path / f"{layers}.gguf")
        command = ["quantize", model, paths[-1], "--mode", "ggml:Q4_0", "--hessian", diagonals, *more]
        result(*command, layers=layers)
    expected, found = ({t.name: t.data for t in GGUFReader(path).tensors} for path in paths)
    for tensor in (tensor for tensor in expected if tensor.startswith(within)):
        assert (found[tensor] == expected[tensor]).mean() > alike, tensor


@pytest.mark.gpu
def test_a_pass_that_goes_back_to_the_cpu_is_not_stopped(gpu: str, text: Path, tmp_path: Path) -> None:
    model = FAMILIES["Mamba"].write(tmp_path / "mamba.gguf")  # Vulkan has no scan of its kind
    diagonals, output = tmp_path / "diagonals.gguf", tmp_path / "quantized.gguf"
    settings = ["--text", text, "--ctx", "64", "--chunks", "4", "--imatrix-only"]
    assert run("calibrate", model, "-o", diagonals, *settings).returncode == 0
    command = ["quantize", model, output, "--mode", "ggml:Q4_0", "--hessian", diagonals, "-ngl", "all"]
    done = run(*command, environment=ENVIRONMENT_OF_GPU, timeout=PATIENCE)
    assert done.returncode == 1
    assert done.stderr.endswith(
        "the CPU computes parts of it that a GPU goes on from, and so no pass can be taken up there: "
        "give --gpu-layers 0\n"
    )
    assert not output.exists()


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


@pytest.mark.gpu
def test_weights_that_change_stay_on_the_cpu(
    gpu: str, generated: Callable[[str], Path], stats_of, text: Path, tmp_path: Path
) -> None:
    settings = ["--hessian", stats_of(F32), "--text", text, "--ctx", "64", "--chunks", "2"]
    expected, found = (
        result("sensitivity", generated(F32), *settings, "-o", tmp_path / f"{n}.toml", layers=n)["by_tensor"]
        for n in (0, "all")
    )
    for name in expected:
        assert found[name]["sensitivity"] == pytest.approx(expected[name]["sensitivity"], rel=0.05), name
