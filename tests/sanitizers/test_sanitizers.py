"""Programs of C++ that sanitizers watch: one driver for each part of csrc, compiled here and run.

A sanitizer may find nothing: no access beside a buffer, no undefined behavior, no race. What else has to
hold a driver checks itself, and ends with 1 where it does not.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import scipy_openblas32

from pyquant import _core
from pyquant.generation.grammar.grammar import read_grammar
from pyquant.generation.grammar.lr.lark_tables import GRAMMARS, make_tables
from pyquant.schemes.q4_0 import q4_0
from pyquant.schemes.q8_0 import q8_0
from tests.support import ROOT
from tests.support.blocks import BLOCK, assert_blocks_equal, sample_blocks
from tests.support.vendored import built, patched_llama, vendored

CSRC = ROOT / "csrc"

# Files that a driver is made of, beside the one of its name.
FILES = ["stream/chunks.cpp", "stream/file.cpp"]
KERNELS = ["kernels/*.cpp", "cpu/features.cpp"]
GGML = [*KERNELS, "ggml/hook.cpp", "llama/abort_guard.cpp"]  # what the patched GGML calls
SOURCES = {
    "kernels": [*KERNELS, "calibrate/bf16_strips.cpp", "calibrate/token_products.cpp", *FILES],
    "stream": [*GGML, "stream/*.cpp"],
    "gptq": [*GGML, "gptq/**/*.cpp", "stream/codec.cpp", "stream/cholesky.cpp", *FILES],
    "spool": ["calibrate/spool.cpp", "stream/file.cpp"],
    "staged_pass": [
        *GGML,
        "calibrate/graph_stages.cpp",
        "calibrate/pass_states.cpp",
        "calibrate/staged_pass.cpp",
        "calibrate/weights_copy.cpp",
        *FILES,
    ],
    "pqz": ["pqz/*.cpp", *FILES],
    "grammar": ["generation/grammar/*.cpp", *FILES],
}
WITH_GGML = ("stream", "gptq", "staged_pass")  # and LAPACK: as the extension is linked

FLAGS = ["-std=c++17", "-O1", "-g", "-ffp-contract=off", "-pthread", "-Wall", "-Wextra", "-Werror"]
# GCC 12 warns of its own AVX-512 headers.
FLAGS += ["-Wno-unknown-warning-option", "-Wno-uninitialized", "-Wno-maybe-uninitialized"]
FLAGS += ["-Wno-psabi"]  # without AVX, vectors are handed over in another way than with it
MEMORY = ["-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
BUILDS = {
    "memory": MEMORY,
    "memory-native": [*MEMORY, "-march=native"],  # with F16C, AVX-512 and the like
    "threads": ["-fsanitize=thread"],
}
PATIENCE = 1000  # seconds, for a program that waits for itself

Program = Callable[[str, str], Path]


def under(*builds: str, slow: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """Run a test in these builds; in the slow ones only when asked for."""
    marks = (pytest.mark.slow, pytest.mark.timeout(2 * PATIENCE))
    rarely = [pytest.param(build, marks=marks) for build in slow]
    return pytest.mark.parametrize("build", [*builds, *rarely])


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Compile a driver in a build; what drivers have in common is compiled once."""
    folder = tmp_path_factory.mktemp("programs")
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if not compiler:
        pytest.skip("no C++ compiler")
    llama, zstd = patched_llama(), vendored("zstd")
    blas, at = scipy_openblas32, scipy_openblas32.get_lib_dir()
    headers = [llama / "ggml/include", llama / "ggml/src", llama / "vendor/hash/xxhash", zstd]
    includes = [f"-I{CSRC}", "-DBLAS_SYMBOL_PREFIX=scipy_"]
    includes += [part for at in (*headers, blas.get_include_dir()) for part in ("-isystem", str(at))]
    libraries = [built("ggml-base"), f"-L{at}", f"-Wl,-rpath,{at}"]
    libraries += [f"-l{blas.get_library().removeprefix('lib')}", "-fopenmp"]  # GGML's

    def run_compiler(*arguments: object) -> None:
        ran = subprocess.run([compiler, *map(str, arguments)], capture_output=True, text=True)
        if "cannot find -l" in ran.stderr or "unsupported option '-fsanitize" in ran.stderr:
            pytest.skip(f"{compiler} comes without this sanitizer's library")
        assert ran.returncode == 0, ran.stderr

    @cache
    def compiled(source: Path, build: str) -> Path:
        made = folder / "-".join([build, *source.relative_to(ROOT).with_suffix(".o").parts])
        run_compiler(*FLAGS, *BUILDS[build], *includes, "-c", source, "-o", made)
        return made

    @cache
    def make(driver: str, build: str) -> Path:
        sources = [Path(__file__).with_name(f"{driver}.cpp")]
        sources += [source for pattern in SOURCES[driver] for source in sorted(CSRC.glob(pattern))]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(lambda source: compiled(source, build), sources))
        if driver == "pqz":
            objects.append(folder / "zstd.o")
            subprocess.run(["cc", "-O2", "-w", "-c", zstd / "zstd.c", "-o", objects[-1]], check=True)
        made = folder / f"{build}-{driver}"
        run_compiler(
            "-pthread", *BUILDS[build], *objects, "-o", made, *(libraries if driver in WITH_GGML else [])
        )
        return made

    return make


def run(program: Path, *arguments: object) -> None:
    """Run a program in which nothing may be found."""
    environment = {**os.environ, "UBSAN_OPTIONS": "print_stacktrace=1", "TSAN_OPTIONS": "halt_on_error=1"}
    command = [str(program), *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE)
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


@pytest.mark.slow
@under("memory", "memory-native", "threads")
def test_kernels(program: Program, build: str, tmp_path: Path) -> None:
    """Builds with and without the CPU's instructions also give the bits of the one under test."""
    rng = np.random.default_rng(0)
    any_bits = rng.integers(0, 2**32, (200, BLOCK), np.uint32).view(np.float32)
    tiny = any_bits.view(np.uint32) & np.uint32(0x80FFFFFF)  # scales with an infinite inverse
    single = np.where(np.arange(BLOCK) == 3, any_bits, 0).astype(np.float32)  # most of these encode
    x = np.concatenate([sample_blocks(300), any_bits, tiny.view(np.float32), single])
    (tmp_path / "weights").write_bytes(x.tobytes())
    run(program("kernels", build), tmp_path / "weights", tmp_path / "results")
    results = np.fromfile(tmp_path / "results", np.uint8)
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
@under("memory-native", slow=("memory",))
def test_gptq(program: Program, build: str) -> None:
    run(program("gptq", build))


@pytest.mark.slow
@under("memory-native", slow=("memory", "threads"))
def test_stream(program: Program, build: str) -> None:
    run(program("stream", build))


@pytest.mark.slow
@under("memory-native")
def test_spool(program: Program, build: str) -> None:
    run(program("spool", build))


@pytest.mark.slow
@under("memory")
def test_staged_pass(program: Program, build: str) -> None:
    run(program("staged_pass", build))


@pytest.mark.slow
@under(slow=("memory", "memory-native", "threads"))
def test_pqz(program: Program, build: str) -> None:
    run(program("pqz", build), 50 if build == "threads" else 10_000)


@pytest.mark.slow
@under("memory", slow=("memory-native", "threads"))
@pytest.mark.parametrize(
    ("name", "letters"),
    [("json", '{}[],:"\\ue1 -.'), ("arithmetic", "0123().+-*/= "), ("ansi_c", "ab1(){}*;,=&+ ")],
)
def test_grammar(program: Program, build: str, name: str, letters: str, tmp_path: Path) -> None:
    tables = make_tables(read_grammar(GRAMMARS / f"{name}.lark"))
    arrays = tables.arrays()
    sizes = [len(tables.lexer.ends), *tables.actions.shape, len(tables.more), tables.gotos.shape[1]]
    sizes.append(len(tables.lengths))
    order = ("next", "ends", "actions", "more", "gotos", "lengths", "origins")
    numbers = np.concatenate([[*sizes, tables.start], *(arrays[each].ravel() for each in order)])
    numbers.astype(np.int32).tofile(tmp_path / "tables")
    run(program("grammar", build), tmp_path / "tables", len(numbers), letters)
