"""Damages a file in many ways and quantizes with it: `fuzz.py N SEED FOLDER MODEL [IMATRIX]`.

What is damaged is the importance matrix, or without one the header of the model. Only a PyquantError
may come out. Prints what came out how often; the file that ended a run is left as FOLDER/damaged.gguf.
"""

from __future__ import annotations

import os
import resource
import struct
import subprocess
import sys
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

from pyquant.errors import PyquantError
from pyquant.models.model_file import ModelFile
from pyquant.quantize.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support import ROOT

EDGES = [0, 1, 2, 3, 4, 31, 32, 33, 63, 64, 255, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40]
EDGES += [2**56, 2**60, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 31]
MEMORY = 3 << 30  # of address space, shared libraries included


def damage(header: bytes, rng: np.random.Generator) -> bytes:
    """One to four changes: bytes, 4 or 8 byte numbers at their edges, cuts, repetitions."""
    data = bytearray(header)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(0, len(data)))
        kind = rng.integers(0, 8)
        if kind < 2:
            data[at] = rng.integers(0, 256)
        elif kind == 2:
            data[at] ^= 1 << int(rng.integers(0, 8))
        elif kind < 6:
            size = int(rng.choice([4, 8]))
            edge = EDGES[rng.integers(0, len(EDGES))]
            number = struct.pack("<Q", edge)[:size]
            data[at : at + size] = number
        elif kind == 6:
            other = int(rng.integers(0, len(data)))
            n = int(rng.integers(1, 40))
            data[at : at + n] = data[other : other + n]
        else:
            n = int(rng.integers(1, 20))
            data[at:at] = data[at : at + n]
    return bytes(data)


def use(model: Path, imatrix: Path | None) -> None:
    """Everything that commands do with a model's header, and a quantization if it is sound."""
    opened = ModelFile(model)
    for key in opened.keys:
        opened.get(key)
    mode = make_mode({"mode": "ggml:Q4_K", "imatrix": imatrix})
    quantize_model(model, model.with_name("out.gguf"), mode, threads=1, force=True)


def run_apart(module: str, n_files: int, folder: Path, *files: Path) -> str:
    """Runs a module of this kind in a process of its own, whose crash can be seen; what it printed."""
    command = [sys.executable, "-m", module, str(n_files), "1", folder, *files]
    environment = {**os.environ, "GGML_NO_BACKTRACE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def fuzz(n_files: int, folder: Path, *files: Path) -> None:
    """GGML's assertions abort, and must be seen to."""
    printed = run_apart("tests.support.fuzz", n_files, folder, *files)
    assert "ModelFileError" in printed
    assert "sound" in printed


def main() -> None:
    n_files, seed, folder, model = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
    imatrix = Path(sys.argv[5]) if len(sys.argv) > 5 else None
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 28, 1 << 28))
    warnings.simplefilter("error")
    rng = np.random.default_rng(seed)
    whole = (imatrix or model).read_bytes()
    n_damaged = len(whole) if imatrix else ModelFile(model).header.data_offset
    path = folder / "damaged.gguf"
    outcomes: Counter[str] = Counter()
    for _ in range(n_files):
        path.write_bytes(damage(whole[:n_damaged], rng) + whole[n_damaged:])
        try:
            use(model, path) if imatrix else use(path, None)
            outcomes["sound"] += 1
        except PyquantError as error:
            outcomes[type(error).__name__] += 1
            if "\n" in str(error):
                sys.exit(f"more than a line: {error}")
        except BaseException:
            traceback.print_exc()
            sys.exit(f"not a PyquantError; {path} is the file")
    print(dict(outcomes))


if __name__ == "__main__":
    main()
