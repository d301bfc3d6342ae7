"""The kernels and the sharing of work under sanitizers, in builds with and without F16C and the like.

A build without them must also give the same bits as the one under test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pyquant import _core
from pyquant.schemes.q4_0 import q4_0
from pyquant.schemes.q8_0 import q8_0
from tests.support import ROOT
from tests.support.blocks import BLOCK, assert_blocks_equal, sample_blocks

CSRC = ROOT / "csrc"
SOURCES = [
    *sorted(CSRC.glob("kernels/*.cpp")),
    CSRC / "calibrate/bf16_inputs.cpp",
    CSRC / "stream/chunks.cpp",
    CSRC / "stream/file.cpp",
]
FLAGS = ["-std=c++17", "-O1", "-g", "-ffp-contract=off", "-pthread", "-Wall", "-Wextra", "-Werror"]
MEMORY = ["-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
THREADS = ["-fsanitize=thread"]


def compile_and_run(flags: list[str], folder: Path, weights: np.ndarray) -> np.ndarray:
    """Runs sanitize.cpp over weights; the bytes it wrote."""
    program = compiled(flags, folder, [Path(__file__).with_name("kernels.cpp"), *SOURCES])
    (folder / "weights").write_bytes(weights.tobytes())
    run([program, folder / "weights", folder / "results"])
    return np.fromfile(folder / "results", np.uint8)


def compiled(flags: list[str], folder: Path, sources: list[Path]) -> Path:
    """The program that a C++ compiler makes of the sources."""
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if not compiler:
        pytest.skip("no C++ compiler")
    program = folder / "sanitize"
    command = [compiler, *FLAGS, *flags, f"-I{CSRC}", *sources]
    built = subprocess.run([*command, "-o", program], capture_output=True, text=True)
    if "cannot find -l" in built.stderr or "unsupported option '-fsanitize" in built.stderr:
        pytest.skip(f"{compiler} comes without this sanitizer's library")
    assert built.returncode == 0, built.stderr
    return program


def run(command: list[object]) -> None:
    """Nothing may be found."""
    environment = {**os.environ, "UBSAN_OPTIONS": "print_stacktrace=1", "TSAN_OPTIONS": "halt_on_error=1"}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment)
    if "unexpected memory mapping" in ran.stderr:
        pytest.skip("this kernel's address layout is not one that the sanitizer knows")
    assert ran.returncode == 0, ran.stderr


def encode_each(scheme, x: np.ndarray, block_bytes: int) -> np.ndarray:
    """Stored blocks one by one; zeros for those without an encoding."""
    blocks = np.zeros((len(x), block_bytes), np.uint8)
    for block, weights in zip(blocks, x):
        try:
            block[:] = _core.encode(scheme.kernel(), weights)
        except ValueError:
            assert not np.isfinite(weights).all() or np.abs(weights).max() > 65504 * 8
    return blocks


@pytest.mark.parametrize(
    "flags",
    [MEMORY, [*MEMORY, "-march=native"], THREADS],
    ids=["memory", "memory-native", "threads"],
)
def test_under_sanitizers(flags: list[str], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    any_bits = rng.integers(0, 2**32, (200, BLOCK), np.uint32).view(np.float32)
    tiny = any_bits.view(np.uint32) & np.uint32(0x80FFFFFF)  # scales with an infinite inverse
    single = np.where(np.arange(BLOCK) == 3, any_bits, 0).astype(np.float32)  # most of these encode
    x = np.concatenate([sample_blocks(300), any_bits, tiny.view(np.float32), single])
    results = compile_and_run(flags, tmp_path, x)
    sizes = np.cumsum([len(x) * 18, len(x) * 34, 4 << 16])
    four, eight, floats, halves = np.split(results, sizes)
    assert_blocks_equal(four, encode_each(q4_0(), x, 18), 18)
    assert_blocks_equal(eight, encode_each(q8_0(), x, 34), 34)
    every_half = np.arange(2**16, dtype=np.uint16).view(np.float16)
    with np.errstate(over="ignore", invalid="ignore"):
        expected_floats, expected_halves = every_half.astype(np.float32), x.ravel().astype(np.float16)
    number = ~np.isnan(every_half)  # of a NaN only that it is one
    assert np.array_equal(floats.view(np.uint32)[number], expected_floats.view(np.uint32)[number])
    assert np.isnan(floats.view(np.float32)[~number]).all()
    number = ~np.isnan(x.ravel())
    assert np.array_equal(halves.view(np.uint16)[number], expected_halves.view(np.uint16)[number])
    assert np.isnan(halves.view(np.float16)[~number]).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "n_frames"),
    [(MEMORY, 10_000), ([*MEMORY, "-march=native"], 10_000), (THREADS, 50)],
    ids=["memory", "memory-native", "threads"],
)
def test_pqz_under_sanitizers(flags: list[str], n_frames: int, tmp_path: Path) -> None:
    vendored = CSRC.parent / "build" / "vendor"
    (zstd,), (xxhash, *_) = vendored.glob("zstd-*/zstd.c"), vendored.glob("llama.cpp-*/vendor/hash/xxhash")
    subprocess.run(["cc", "-O2", "-w", "-c", zstd, "-o", tmp_path / "zstd.o"], check=True)
    sources = [Path(__file__).with_name("pqz.cpp"), *sorted(CSRC.glob("pqz/*.cpp"))]
    sources += [CSRC / "stream" / "chunks.cpp", CSRC / "stream" / "file.cpp", tmp_path / "zstd.o"]
    headers = ["-isystem", str(zstd.parent), "-isystem", str(xxhash)]
    run([compiled([*flags, *headers], tmp_path, sources), str(n_frames)])
