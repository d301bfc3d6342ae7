"""A wheel for 64-bit ARM, run by qemu-user: kernels equal their twins, and results are this build's.

`make arm` fetches a Python for ARM; times of qemu say nothing.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pyquant.calibration.calibrate import calibrate_model
from pyquant.data import evaluation_text, model_path
from pyquant.evaluate.perplexity import measure_perplexity
from tests.support import ROOT, arm_python
from tests.support.command import run

PYTHON = arm_python.python()
VERSION = PYTHON.name.removeprefix("python") if PYTHON else ""
QEMU = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
TAG = f"cp{VERSION.replace('.', '')}"
WHEEL = next((ROOT / "build" / "dist").glob(f"pyquant-*-{TAG}-*_aarch64.whl"), None)
VARIANTS = ("armv8_0", "armv8_2", "armv8_6")
PLATFORMS = [f"manylinux_2_{glibc}_aarch64" for glibc in range(36, 16, -1)]  # Debian 12 has 2.36

Python = Callable[..., str]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        not (PYTHON and QEMU and WHEEL),
        reason="needs qemu-aarch64, `make arm`, `make wheel ARCHITECTURE=aarch64` with the same Python",
    ),
]

# Prints a hash of the masks along a text.
MASKS = """
import hashlib, numpy as np
from pyquant.data import model_path
from pyquant.generation.grammar.engines import make_engine
from pyquant.generation.grammar.grammar import Grammar, Language
from pyquant.llama.model import Model
GRAMMAR = 'start: "[" NUMBER (", " NUMBER)* "]"\\nNUMBER: /[0-9]+/'
digest = hashlib.sha256()
with Model(model_path()) as model:
    for name in ("lr", "llguidance"):
        compiled = make_engine(name, model.vocabulary).compile(Grammar(Language.LARK, GRAMMAR))
        state, words = compiled.start(), np.zeros(compiled.n_words, np.int32)
        for token in model.vocabulary.tokenize(b"[127, 3, 54]")[1:]:  # behind BOS
            state.mask(words)
            digest.update(words.tobytes())
            state.advance(int(token))
print(digest.hexdigest())
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel and what it needs into a folder."""
    site = tmp_path_factory.mktemp("arm")
    install = [sys.executable, "-m", "pip", "install", "-qq", "--only-binary=:all:", f"--target={site}"]
    install += [*(f"--platform={name}" for name in PLATFORMS), "--platform=manylinux2014_aarch64"]
    needed = [f"{WHEEL}[generation]", "pytest", "pytest-timeout", "hypothesis", "scipy"]
    subprocess.run([*install, f"--python-version={VERSION}", *needed], check=True)
    return site


@pytest.fixture(params=VARIANTS)
def arm(request: pytest.FixtureRequest, site: Path) -> Python:
    """Give what runs the arm64 Python with a variant of the extension, in a folder."""
    root = PYTHON.parents[2]
    environment = {
        "HOME": str(site),
        "PYTHONHOME": f"{root}/usr",
        "PYTHONPATH": str(site),
        "PYQUANT_CACHE": str(site / "cache"),
        "PYQUANT_CPU": request.param,
        "PYQUANT_TEST_SECONDS": "3600",
        "QEMU_CPU": "max,sve=off",  # numpy's products have NaNs with the SVE of qemu 7.2
    }

    def python(*arguments: object, folder: Path = site) -> str:
        program = [str(QEMU), "-L", str(root), str(PYTHON)]
        done = subprocess.run(
            [*program, *map(str, arguments)], capture_output=True, text=True, env=environment, cwd=folder
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout

    return python


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a text and an imatrix with this build."""
    folder = tmp_path_factory.mktemp("made_here")
    text = folder / "text.txt"
    text.write_text(evaluation_text())
    calibrate_model(model_path(), [text], folder / "imatrix.gguf", imatrix_only=True, n_chunks=4)
    return folder


def test_kernels_equal_their_twins(arm: Python, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tests", tmp_path / "tests")
    (tmp_path / "pyproject.toml").write_text(
        "[tool.pytest.ini_options]\nmarkers = ['ci', 'oracle', 'slow', 'gpu']\n"
    )
    told = ["-q", "-p", "no:cacheprovider", "--tier=all"]
    # These measure time, or round for minutes natively, and compare with no twin.
    told += ["-k", "not interpreter_runs_on and not no_sweep_adds and not threads_and_chunks"]
    said = arm("-m", "pytest", *told, "tests/kernels", folder=tmp_path)
    assert " passed" in said
    assert " failed" not in said


@pytest.mark.parametrize(
    "arguments",
    [["Q4_0"], ["Q4_K_M"], ["Q4_K_M", "--imatrix", "imatrix.gguf"], ["IQ4_NL", "--imatrix", "imatrix.gguf"]],
    ids=" ".join,
)
def test_quantize_writes_the_same_bytes(
    arm: Python, folder: Path, tmp_path: Path, arguments: list[str]
) -> None:
    paths = [folder / word if word.endswith(".gguf") else word for word in arguments]
    here, there = tmp_path / "here.gguf", tmp_path / "there.gguf"
    assert run("quantize", model_path(), here, *paths).returncode == 0
    arm("-m", "pyquant", "quantize", model_path(), there, *paths)
    assert here.read_bytes() == there.read_bytes()


def test_perplexity_is_this_builds(arm: Python, folder: Path) -> None:
    text = folder / "text.txt"
    said = arm("-m", "pyquant", "perplexity", model_path(), "--text", text, "--chunks", 2, "--json")
    expected = measure_perplexity(model_path(), text, n_chunks=2).ppl
    assert json.loads(said)["results"][0]["ppl"] == pytest.approx(expected, rel=1e-4)


def test_pqz_goes_there_and_back(arm: Python, tmp_path: Path) -> None:
    quantized, here, there, back = (
        tmp_path / name for name in ("q.gguf", "here.pqz", "there.pqz", "back.gguf")
    )
    assert run("quantize", model_path(), quantized, "Q4_0").returncode == 0
    assert run("pack", quantized, here).returncode == 0
    arm("-m", "pyquant", "pack", quantized, there)
    assert here.read_bytes() == there.read_bytes()
    arm("-m", "pyquant", "unpack", here, back)
    assert back.read_bytes() == quantized.read_bytes()


def test_masks_of_grammars_are_this_builds(arm: Python) -> None:
    here = subprocess.run([sys.executable, "-c", MASKS], capture_output=True, text=True, check=True).stdout
    assert arm("-c", MASKS) == here
