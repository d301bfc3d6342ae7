"""Wheels that `make wheel` made: each works as this build does, without a compiler and without a network."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyquant import _cpu
from pyquant.calibration.calibrate import calibrate_model
from pyquant.data import evaluation_text, model_path
from pyquant.evaluate.compare import compare_models
from tests.support import ROOT
from tests.support.command import run

WHEELS = sorted((ROOT / "build" / "dist").glob("pyquant-*manylinux*.whl"))
MOST_BYTES = 30e6  # beside the bundled model
QEMU = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")

Command = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not WHEELS, reason="`make wheel` has made none"),
]


def python_of(wheel: Path) -> str | None:
    """Find the Python that a wheel is for; None: it is of another machine, or not installed."""
    major, minor, machine = re.search(r"-cp(\d)(\d+)-.*_(x86_64|aarch64)\.whl$", wheel.name).groups()
    return shutil.which(f"python{major}.{minor}") if machine == os.uname().machine else None


@pytest.fixture(scope="module", params=WHEELS, ids=lambda wheel: wheel.name.split("-", 2)[2])
def installed(request: pytest.FixtureRequest) -> Iterator[Command]:
    """Install a wheel into an empty environment; give what runs a command there."""
    wheel = request.param
    python = python_of(wheel)
    if not python:
        pytest.skip("for another machine or another Python")
    with tempfile.TemporaryDirectory() as folder:
        house = Path(folder, "wheels")
        subprocess.run([python, "-m", "venv", folder], check=True)
        # With the network; everything after it is without one, and without any other program.
        fetch = [f"{folder}/bin/python", "-m", "pip", "download", "-qq", f"--dest={house}"]
        subprocess.run([*fetch, "--only-binary=:all:", f"{wheel}[generation]"], check=True)
        environment = {"PATH": "", "HOME": folder, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(house)}

        def execute(command: str, *arguments: object, status: int = 0, by: tuple[str, ...] = (), **more: str):
            program = [*by, f"{folder}/bin/{command}"]
            done = subprocess.run(
                [*program, *map(str, arguments)],
                capture_output=True, text=True, env=environment | more, cwd=folder,
            )  # fmt: skip
            assert done.returncode == status, done.stdout[-2000:] + done.stderr[-4000:]
            return done

        begin = time.perf_counter()
        execute("pip", "install", "pyquant[generation]")
        seconds = time.perf_counter() - begin
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {seconds:.1f} s to install")
        yield execute


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a text and statistics with this build."""
    folder = tmp_path_factory.mktemp("made_here")
    text = folder / "text.txt"
    text.write_text(evaluation_text())
    calibrate_model(
        model_path(), [text], folder / "hessian.gguf", imatrix=folder / "imatrix.gguf", n_chunks=4
    )
    return folder


def test_it_is_small_and_names_what_is_compiled_in() -> None:
    for wheel in WHEELS:
        with zipfile.ZipFile(wheel) as archive:
            files = {info.filename: info.compress_size for info in archive.infolist()}
        model = sum(size for name, size in files.items() if name.endswith(".gguf"))
        assert sum(files.values()) - model < MOST_BYTES
        licences = {name.partition("/licenses/")[2] for name in files if "/licenses/" in name}
        of_others = {f"{name}/LICENSE" for name in ("llama.cpp", "pybind11", "xxhash", "zstd")}
        assert licences == {"LICENSE", "llama-cpp-python/LICENSE.md"} | of_others
        assert not any("libgomp" in name or "libomp" in name for name in files)


@pytest.mark.parametrize("variant", _cpu.variants())
def test_the_front_door(installed: Command, folder: Path, tmp_path: Path, variant: str) -> None:
    def pyquant(*arguments: object) -> str:
        return installed("pyquant", *arguments, PYQUANT_CPU=variant).stdout

    assert json.loads(pyquant("info", "--json"))["variant"] == variant
    pyquant("quantize", model_path(), tmp_path / "made.gguf", "Q4_0")
    pyquant("histogram", tmp_path / "made.gguf")
    measured = ["--text", folder / "text.txt", "--chunks", 4, "--json"]
    compared = json.loads(pyquant("compare", model_path(), tmp_path / "made.gguf", *measured))
    # The kernels of another variant round their sums in another order.
    here = compare_models(model_path(), [tmp_path / "made.gguf"], folder / "text.txt", n_chunks=4).to_json()
    assert compared["base"]["perplexity"] == pytest.approx(here["base"]["perplexity"], rel=1e-4)
    kld = here["candidates"][0]["kld"]["mean"]
    assert compared["candidates"][0]["kld"]["mean"] == pytest.approx(kld, rel=0.02)
    pyquant(
        "generate", model_path(), "-p", "1", "--grammar", "arithmetic", "--engine", "lr", "--max-tokens", 2
    )


@pytest.mark.parametrize("variant", _cpu.variants())
@pytest.mark.parametrize(
    "arguments",
    [
        ["Q4_K_M"],
        ["Q4_K_M", "--imatrix", "imatrix.gguf"],
        ["IQ4_XS", "--imatrix", "imatrix.gguf"],
        ["--mode", "ggml:Q4_K", "--hessian", "hessian.gguf"],
    ],
    ids=" ".join,
)
def test_every_variant_writes_the_same_bytes(
    installed: Command, folder: Path, tmp_path: Path, arguments: list[str], variant: str
) -> None:
    paths = [folder / word if word.endswith(".gguf") else word for word in arguments]
    here, there = tmp_path / "here.gguf", tmp_path / "there.gguf"
    assert run("quantize", model_path(), here, *paths).returncode == 0
    installed("pyquant", "quantize", model_path(), there, *paths, PYQUANT_CPU=variant)
    assert here.read_bytes() == there.read_bytes()


@pytest.mark.skipif(not QEMU, reason="needs qemu-x86_64, which is any CPU")
@pytest.mark.parametrize(("cpu", "variant"), [("Haswell", "x86_64_v3"), ("Nehalem", None)])
def test_an_old_cpu(installed: Command, cpu: str, variant: str | None) -> None:
    by = (QEMU, "-cpu", cpu)
    done = installed("python", "-m", "pyquant", "info", "--json", by=by, status=0 if variant else 1)
    if variant:
        assert json.loads(done.stdout)["variant"] == variant
    else:
        said = [line for line in done.stderr.splitlines() if "TCG" not in line]  # qemu's own warnings
        assert said == [
            "pyquant: this CPU (x86_64) lacks instructions that pyquant was compiled for, on x86-64 AVX2, "
            "FMA and F16C: build pyquant from source on this machine"
        ]


def test_errors_are_pythons(installed: Command) -> None:
    """Extensions with a C++ library of their own do not know each other's exceptions."""
    program = (
        "import numpy as np; from pyquant import _core\n"
        "try: _core.factorize(-np.eye(64, dtype=np.float32), dampening=0.01, together=32)\n"
        "except ValueError as error: print(error)"
    )
    assert installed("python", "-c", program).stdout == "Hessian statistics are not positive definite\n"


def test_no_openmp_comes_with_it(installed: Command) -> None:
    """numpy or torch may bring one: there are no two in a process then."""
    program = (
        "import pyquant; from pyquant.data import model_path; from pyquant.llama.model import Model\n"
        "model = Model(model_path()); print(open('/proc/self/maps').read())"
    )
    maps = installed("python", "-c", program).stdout
    assert "/_core_x86_64" in maps or "/_core_armv8" in maps
    assert not re.search(r"lib(g|i|)omp", maps)


def test_it_starts_quickly(installed: Command) -> None:
    for command in (["python", "-c", "import pyquant"], ["pyquant", "--help"]):
        installed(*command)  # caches of Python are written
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        installed(*command)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = sum(getattr(after, name) - getattr(before, name) for name in ("ru_utime", "ru_stime"))
        print(f"{' '.join(command)}: {seconds:.2f} s")
        assert seconds < 0.3  # twice what a machine at rest takes


@pytest.mark.parametrize(
    "system", ["musllinux_1_2_x86_64", "linux_i686", "manylinux_2_28_aarch64", "manylinux_2_17_x86_64"]
)
def test_other_systems_do_not_take_it(installed: Command, tmp_path: Path, system: str) -> None:
    elsewhere = [f"--platform={system}", "--only-binary=:all:", "--no-deps", f"--target={tmp_path}"]
    refused = installed("pip", "install", *elsewhere, "pyquant", status=1)
    assert "No matching distribution found for pyquant" in refused.stderr


def test_without_openblas(installed: Command) -> None:
    installed("pip", "uninstall", "-y", "scipy-openblas32")
    refused = installed("pyquant", "info", status=1)
    assert refused.stderr.startswith("pyquant: ")
    assert refused.stderr.endswith("pip install --force-reinstall pyquant scipy-openblas32\n")
    assert refused.stderr.count("\n") == 1
    installed("pip", "install", "scipy-openblas32")
