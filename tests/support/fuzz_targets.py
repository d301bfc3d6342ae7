"""Fuzzes the native readers, guided by coverage: `fuzz_targets.py SECONDS [FOLDER]`; each target for so long.

Targets are tests/fuzz/*.cpp, for libFuzzer, watched by the address and undefined behavior sanitizers, and
for readers in Python the modules tests/fuzz/*.py, for Atheris, which is libFuzzer as well. They begin with
seeds that are made here, and with tests/fuzz/corpus: small inputs that fuzzing found, each of which comes to
a place of the code that others do not come to. FOLDER keeps what they find for the next time, and inputs
that end a target; without it, build/fuzz does.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pyquant import _core
from pyquant.calibration.hessian_file import KEY
from pyquant.calibration.hessian_rows import add_checksums
from pyquant.calibration.panels import triangle_size
from pyquant.models.model_file import ModelFile
from pyquant.models.pqz.block_layout import TEXT, Field, Layout, block_bytes, kernel
from pyquant.models.pqz.index import Index, PqzTensor
from pyquant.models.pqz.layout_of_type import LAYOUTS
from pyquant.models.tensor_type import TensorType as Type
from tests.support import ROOT
from tests.support.models import Model
from tests.support.vendored import built, patched_llama, vendored

FLAGS = ["-std=c++17", "-O1", "-g", "-march=native", "-fsanitize=fuzzer,address,undefined"]
FLAGS += ["-fno-sanitize-recover=all"]
FLAGS += ["-fno-sanitize=enum"]  # GGML's reader takes types as they come, and asks then what they are
CORPUS = ROOT / "tests" / "fuzz" / "corpus"  # a folder for each target
LEAK = 2048  # MB of memory, beyond which a target fails
LONGEST = 10  # seconds for one input


class NoFuzzer(Exception):
    """There is no clang, or it lacks libFuzzer; or there is no Atheris."""


def gguf_seeds(folder: Path) -> None:
    """Headers of small models, with and without a tokenizer and an odd alignment."""
    small = {"n_embd": 32, "n_ff": 32, "n_layer": 1, "n_head": 2, "n_head_kv": 2, "tied": True}
    for name, model in {
        "bare": Model(**small, n_vocab=40, tokenizer=False),
        "whole": Model(**small, n_vocab=300),
        "aligned": Model(**small, n_vocab=40, tokenizer=False, alignment=64),
    }.items():
        path = model.write(folder / name)
        path.write_bytes(path.read_bytes()[: ModelFile(path).header.data_offset])
    header = _core.Gguf()
    for value, key in enumerate(("general.architecture", "split.count")):
        header.set_u32(key, value)
    header.set_texts("texts", ["a", "", "b"])
    header.add_tensor("x", int(Type.Q4_0), [32, 2])
    (folder / "few").write_bytes(header.header())


def frame_layouts() -> list[Layout]:
    """The layouts among which the first byte of an input chooses, as in pqz_frame.cpp."""
    four_bytes = (Field("numbers", 1),) * 4
    return [TEXT, (Field("codes", 1),), LAYOUTS[Type.Q4_0], LAYOUTS[Type.Q8_0], four_bytes]


def frame_seeds(folder: Path) -> None:
    """Frames of codes, numbers and text, coded by rANS and by zstd."""
    rng = np.random.default_rng(0)
    for number, layout in enumerate(frame_layouts()):
        for n_blocks, spread in ((1, 1.0), (60, 3.0), (600, 0.5)):
            size = n_blocks * block_bytes(layout)
            data = np.abs(rng.normal(size=size) * spread).astype(np.uint8).tobytes()
            coded = _core.encode_frame(kernel(layout), data)
            begin = bytes([number, n_blocks % 256, n_blocks // 256])
            (folder / f"{number}-{n_blocks}").write_bytes(begin + coded)


def index_seeds(folder: Path) -> None:
    """Indexes of a packed model and of one without tensors, with the right number of frames and with none."""
    layouts = {"Q4_0": LAYOUTS[Type.Q4_0], "F16": LAYOUTS[Type.F16]}
    tensors = [PqzTensor(name="a", type="Q4_0", begin=100, n_bytes=1800)]
    tensors += [PqzTensor(name="b", type="F16", begin=1920, n_bytes=64)]
    whole = Index(1984, {"pyquant": "0", "zstd": "1"}, layouts, tensors)
    bare = Index(10, {}, {}, [])
    for name, index in (("whole", whole), ("bare", bare)):
        for n_frames in (index.n_frames(), 0):
            begin = struct.pack("<QB", index.n_bytes, n_frames)
            (folder / f"{name}-{n_frames}").write_bytes(begin + index.description())


def stats_seeds(folder: Path) -> None:
    """Headers of statistics: with moments, with experts, and of the version without checksums."""
    for name, n_groups, version in (("sums", 1, 2), ("experts", 2, 2), ("old", 1, 1)):
        header = _core.Gguf()
        header.set_text("general.type", KEY)
        for key, number in {"version": version, "chunk_size": 8, "panel": _core.PANEL}.items():
            header.set_u32(f"{KEY}.{key}", number)
        header.set_text(f"{KEY}.model.sha256", "0" * 64)
        header.set_text(f"{KEY}.texts", '[{"path": "t", "sha256": "", "weight": 1.0, "n_chunks": 1}]')
        header.set_text(f"{KEY}.streams", '{"x": 0.5}')
        for key in ("matrices", "inputs"):
            header.set_texts(f"{KEY}.{key}", ["x"])
        header.add_tensor("tokens", int(Type.I32), [8, 1])
        header.add_tensor("x.in_sum2", int(Type.F32), [32, n_groups])
        header.add_tensor("x.counts", int(Type.F64), [n_groups])
        header.add_tensor("x.hessian_counts", int(Type.F64), [n_groups])
        header.add_tensor("x.hessian", int(Type.F32), [triangle_size(32), n_groups])
        header.add_tensor("x.first", int(Type.F32), [32])
        if version > 1:
            add_checksums(header)
        (folder / name).write_bytes(header.header()[len(b"GGUF") + 4 :])


# Files that a target is made of, relative to csrc (a target in Python: of none), and its seeds.
TARGETS: dict[str, tuple[list[str], Callable[[Path], None]]] = {
    "gguf_header": (["gguf/*.cpp"], gguf_seeds),
    "pqz_frame": (["pqz/frame.cpp", "pqz/stream.cpp", "pqz/rans.cpp", "pqz/layout.cpp"], frame_seeds),
    "pqz_index": ([], index_seeds),
    "hessian_header": ([], stats_seeds),
}


def compiler() -> str:
    """Find clang. Raises NoFuzzer."""
    versions = [f"-{version}" for version in range(30, 11, -1)]
    for name in [os.environ.get("CXX", ""), *(f"clang++{version}" for version in ["", *versions])]:
        if "clang" in name and (path := shutil.which(name)):
            return path
    raise NoFuzzer("no clang++, which has libFuzzer; Debian has it in clang and libclang-rt-14-dev")


def build(target: str, folder: Path) -> Path:
    """Compile a target. Raises NoFuzzer."""
    llama, zstd, csrc = patched_llama(), vendored("zstd"), ROOT / "csrc"
    headers = [llama / "ggml/include", llama / "ggml/src", llama / "vendor/hash/xxhash", zstd]
    includes = [f"-I{csrc}", *(part for at in headers for part in ("-isystem", str(at)))]
    patterns, _ = TARGETS[target]
    sources = [
        ROOT / "tests" / "fuzz" / f"{target}.cpp",
        *(f for p in patterns for f in sorted(csrc.glob(p))),
    ]
    libraries: list[str] = []
    if target == "gguf_header":  # GGML's reader is watched too; what else it calls is linked
        sources.append(llama / "ggml/src/gguf.cpp")
        libraries = [str(built("ggml-base"))]
    else:
        subprocess.run(["cc", "-O2", "-w", "-c", zstd / "zstd.c", "-o", folder / "zstd.o"], check=True)
        libraries = [str(folder / "zstd.o")]
    program = folder / target
    command = [compiler(), *FLAGS, *includes, *map(str, sources), *libraries, "-o", str(program)]
    ran = subprocess.run(command, capture_output=True, text=True)
    if "libclang_rt.fuzzer" in ran.stderr:
        raise NoFuzzer(f"{command[0]} comes without libFuzzer; Debian has it in libclang-rt-14-dev")
    if ran.returncode:
        raise RuntimeError(ran.stderr)
    return program


def command_of(target: str, folder: Path) -> list[str]:
    """Give the words that run a target, without options. Raises NoFuzzer."""
    if TARGETS[target][0]:
        return [str(build(target, folder))]
    if importlib.util.find_spec("atheris") is None:
        raise NoFuzzer("no Atheris, which watches Python; there is none for this system or version of Python")
    return [sys.executable, "-m", f"tests.fuzz.{target}"]


def fuzz(target: str, folder: Path, seconds: int) -> str:
    """Run a target; what it did, in a line. Raises RuntimeError with its report if an input ends it."""
    folder.mkdir(parents=True, exist_ok=True)
    seeds, corpus = folder / f"{target}.seeds", folder / f"{target}.corpus"
    for made in (seeds, corpus):
        made.mkdir(exist_ok=True)
    TARGETS[target][1](seeds)
    options = [f"-max_total_time={seconds}", f"-timeout={LONGEST}", f"-rss_limit_mb={LEAK}", "-max_len=8192"]
    options += ["-print_final_stats=1", f"-artifact_prefix={folder}/{target}-"]
    folders = map(str, (corpus, seeds, CORPUS / target))
    command = [*command_of(target, folder), *options, *folders]
    ran = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=ROOT)
    if ran.returncode:
        raise RuntimeError(
            f"{target} was ended by an input, which is kept in {folder}:\n{ran.stderr[-5000:]}"
        )
    executions = re.findall(r"number_of_executed_units: (\d+)", ran.stderr)[-1]
    coverage, features = re.findall(r"cov: (\d+) ft: (\d+)", ran.stderr)[-1]
    return f"{target}: {int(executions):,} executions, {coverage} edges and {features} features covered"


def main() -> None:
    seconds = int(sys.argv[1])
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "build" / "fuzz")
    try:
        for target in TARGETS:
            print(fuzz(target, folder, seconds), flush=True)
    except (NoFuzzer, RuntimeError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
