"""Damages a packed model in many ways, its checksums made right again: `fuzz_packed.py N SEED FOLDER FILE`.

So the damage comes to what reads descriptions and frames. Only a ModelFileError may come out of it, or the
bytes that were packed.
"""

from __future__ import annotations

import os
import resource
import sys
import traceback
from collections import Counter
from pathlib import Path

import numpy as np

from pyquant.errors import ModelFileError
from pyquant.models.model_file import ModelFile
from pyquant.models.pqz.as_gguf import as_gguf
from pyquant.models.pqz.index import HEAD_BYTES
from pyquant.models.pqz.pqz_file import PqzFile, scratch_file
from tests.support.fuzz import MEMORY, damage, run_apart
from tests.support.models import resealed


def fuzz_packed(n_files: int, folder: Path, packed: Path) -> None:
    """Runs this in a process of its own, which a crash would end."""
    printed = run_apart("tests.support.fuzz_pqz", n_files, folder, packed)
    assert "ModelFileError" in printed
    assert "sound" in printed


def use(path: Path, stock: bytes) -> None:
    """Reads all that is in it, by frame and as a whole."""
    packed = PqzFile(path)
    if packed.n_bytes > 1 << 26:
        return
    packed.verify(1)
    ModelFile(path)
    with scratch_file() as file:
        packed.expand(file.fileno(), 1)
        if file.read() != stock:
            raise ValueError("expanded without an error to other bytes")


def main() -> None:
    n_files, seed, folder, packed = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    rng = np.random.default_rng(seed)
    whole = packed.read_bytes()
    frames = PqzFile(packed)._frames
    with as_gguf(packed) as expanded:
        stock = expanded.read_bytes()
    path = folder / "damaged.pqz"
    outcomes: Counter[str] = Counter()
    for number in range(n_files):
        if number % 2:  # the head and the index
            end = frames[0].coded_begin
            data = damage(whole[8:end], rng)
            data = whole[:8] + data + whole[end:]
        else:  # a frame
            frame = frames[rng.integers(len(frames))]
            end = frame.coded_begin + frame.coded_bytes
            coded = damage(whole[frame.coded_begin : end][:200], rng)[: frame.coded_bytes]
            data = bytearray(whole)
            data[frame.coded_begin : frame.coded_begin + len(coded)] = coded
        path.write_bytes(resealed(data) if len(data) > HEAD_BYTES else data)
        try:
            use(path, stock)
            outcomes["sound"] += 1
        except ModelFileError as error:
            outcomes["ModelFileError"] += 1
            if "\n" in str(error):
                sys.exit(f"more than a line: {error}")
        except BaseException:
            traceback.print_exc()
            sys.exit(f"not a ModelFileError; {path} is the file")
    os.unlink(path)
    print(dict(outcomes))


if __name__ == "__main__":
    main()
