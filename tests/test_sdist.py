"""The source distribution: what is in it, and that it becomes a pyquant that works where no checkout is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from pyquant import make_mode, quantize_model
from pyquant.data import model_path
from tests.support import ROOT

SDISTS = ROOT / "build" / "sdist"  # of llama.cpp and zstd, which the build then need not download


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    execute([sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", folder, ROOT])
    (path,) = folder.iterdir()
    return path


def execute(command: list[object], **options) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.mark.ci
def test_all_of_the_source_is_in_it_and_nothing_else(sdist: Path):
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers()}
    # Files that git has, or would add.
    files = set(execute(["git", "ls-files", "-c", "-o", "--exclude-standard"], cwd=ROOT).splitlines())
    expected = {name for name in files if not name.startswith((".ci/", ".git")) and (ROOT / name).exists()}
    assert names == expected | {"PKG-INFO"}


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_wheel_made_of_it_works_in_a_clean_environment(sdist: Path, tmp_path: Path):
    llama, zstd = (next(SDISTS.glob(f"{name}-*.tar.gz")) for name in ("llama_cpp_python", "zstandard"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"PYQUANT_LLAMA_SDIST": str(llama), "PYQUANT_ZSTD_SDIST": str(zstd)}
    # The folder goes at the end: pytest keeps those of its last runs, and this is 0.5 GB.
    with tempfile.TemporaryDirectory() as folder:

        def run(command: str, *arguments: object) -> str:
            program = Path(folder, "bin", command)
            return execute([program, *arguments], cwd=folder, env=environment).strip()

        execute([sys.executable, "-m", "venv", folder])
        run("pip", "install", f"{sdist}[generation]")

        imported = run("python", "-c", "import pyquant; pyquant.quantize_model; print(pyquant.__file__)")
        assert Path(imported).is_relative_to(folder)
        assert json.loads(run("pyquant", "info", "--json"))["extension"].startswith(folder)
        model = run("python", "-c", "from pyquant.data import model_path; print(model_path())")
        run("pyquant", "quantize", "--mode", "q4_0", model, tmp_path / "made.gguf")
        grammar = ["--grammar", "arithmetic", "--engine", "lr"]
        run("pyquant", "generate", model, "-p", "1", *grammar, "--max-tokens", "2")
    expected = tmp_path / "expected.gguf"
    quantize_model(model_path(), expected, make_mode({"mode": "q4_0"}))
    assert (tmp_path / "made.gguf").read_bytes() == expected.read_bytes()
