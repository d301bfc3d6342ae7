"""Wheels that `make wheel` made: each works as this build does, without a compiler and without a network."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyquant import quantize
from pyquant.data import evaluation_text, model_path
from tests.support import ROOT

WHEELS = sorted((ROOT / "build" / "dist").glob("pyquant-*manylinux*.whl"))
MOST_BYTES = 30e6  # beside the bundled model

Command = Callable[..., str]

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
        fetch = [f"{folder}/bin/python", "-m", "pip", "download", "-q", f"--dest={house}"]
        subprocess.run([*fetch, "--only-binary=:all:", f"{wheel}[generation]"], check=True)
        environment = {"PATH": "", "HOME": folder, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(house)}

        def run(command: str, *arguments: object, **more: str) -> str:
            program = [f"{folder}/bin/{command}"]
            done = subprocess.run(
                [*program, *map(str, arguments)],
                capture_output=True, text=True, env=environment | more, cwd=folder,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
            return done.stdout

        begin = time.perf_counter()
        run("pip", "install", "pyquant[generation]")
        seconds = time.perf_counter() - begin
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {seconds:.1f} s to install")
        yield run


def test_it_is_small_and_names_what_is_compiled_in() -> None:
    for wheel in WHEELS:
        with zipfile.ZipFile(wheel) as archive:
            files = {info.filename: info.compress_size for info in archive.infolist()}
        model = sum(size for name, size in files.items() if name.endswith(".gguf"))
        assert sum(files.values()) - model < MOST_BYTES
        licences = {name.partition("/licenses/")[2] for name in files if "/licenses/" in name}
        assert {"LICENSE", "llama.cpp/LICENSE", "llama-cpp-python/LICENSE.md", "zstd/LICENSE"} <= licences
        assert not any("libgomp" in name or "libomp" in name for name in files)


def variants(run: Command) -> list[str]:
    return run("python", "-c", "from pyquant import _cpu; print(*_cpu.variants())").split()


def test_the_front_door(installed: Command, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(evaluation_text())
    expected = tmp_path / "expected.gguf"
    quantize(model_path(), expected, "Q4_K_M")
    perplexities = []
    for variant in variants(installed):
        out, forced = tmp_path / f"{variant}.gguf", {"PYQUANT_CPU": variant}
        assert json.loads(installed("pyquant", "info", "--json", **forced))["variant"] == variant
        installed("pyquant", "quantize", model_path(), out, "Q4_K_M", **forced)
        assert out.read_bytes() == expected.read_bytes()
        measured = ["--text", text, "--chunks", 4, "--json"]
        compared = installed("pyquant", "compare", model_path(), out, *measured, **forced)
        perplexities.append(json.loads(compared)["candidates"][0]["perplexity"])
        counted = tmp_path / f"{variant}-counted.gguf"
        installed("pyquant", "quantize", model_path(), counted, "Q4_0", **forced)
        installed("pyquant", "histogram", counted, **forced)
        grammar = ["--grammar", "arithmetic", "--engine", "lr"]
        installed("pyquant", "generate", model_path(), "-p", "1", *grammar, "--max-tokens", 2, **forced)
    assert perplexities == pytest.approx(len(perplexities) * [perplexities[0]], rel=1e-3)
