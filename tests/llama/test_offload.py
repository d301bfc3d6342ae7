"""Layers on a GPU: which are asked for, what is refused, and that a device gives what the CPU gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from gguf import GGUFReader

from pyquant import _core, data
from pyquant.errors import ConfigError
from pyquant.llama.offload import ALL, GPU_LAYERS, MAIN_GPU, ON_CPU, TENSOR_SPLIT, Offload
from tests.support.command import ENVIRONMENT, run
from tests.support.families import FAMILIES
from tests.support.gpu import ENVIRONMENT_OF_GPU, PATIENCE, result
from tests.support.models import EXPERTS, F32


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


@pytest.mark.parametrize(
    ("offload", "n_devices", "whole"),
    [
        (Offload(ALL), 1, True),
        (Offload(ALL), 2, False),  # shared out
        (Offload(ALL, main_gpu=1), 2, True),
        (Offload(13), 1, True),  # 12 layers, and the output
        (Offload(12), 1, False),
        (Offload(0), 1, False),
    ],
)
def test_one_device_has_all(
    offload: Offload, n_devices: int, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyquant._core.devices", lambda: ["GPU"] * n_devices)
    assert offload.is_whole(12) == whole


@pytest.mark.parametrize(
    ("offload", "says"),
    [
        (Offload(1, main_gpu=1), None),
        (Offload(1, main_gpu=2), "main-gpu: 2: there are 2, from 0 on"),
        (Offload(1, tensor_split=(1, 2)), None),
        (Offload(1, tensor_split=(1, 2, 3)), "tensor-split: 3 shares, and there are 2 devices"),
        (Offload(0, main_gpu=7), None),  # of nothing
    ],
)
def test_devices_that_are_not_there_are_refused(
    offload: Offload, says: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyquant._core.devices", lambda: ["GPU"] * 2)
    if says is None:
        offload.check()
        return
    with pytest.raises(ConfigError, match=says):
        offload.check()
