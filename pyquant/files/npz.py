"""Arrays of numbers in npz files: read whatever is wrong with them, and replaced whole."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant.files.output_file import partial_of

# A file of numbers does not expand to more than so many bytes and times its own.
MOST_BYTES, MOST_TIMES = 64 << 20, 8
# Errors that zip and numpy raise of damaged files. Encrypted ones are a RuntimeError.
_BROKEN = (
    EOFError, KeyError, MemoryError, OverflowError, RuntimeError, SyntaxError, TokenError, TypeError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Read all arrays, by name. Raises OSError: it cannot be read. ValueError: it is broken."""
    try:
        with zipfile.ZipFile(path) as archive:
            n_bytes = sum(member.file_size for member in archive.infolist())
        if n_bytes > MOST_BYTES + MOST_TIMES * path.stat().st_size:
            raise ValueError(f"expands to {n_bytes:,} bytes, which no numbers do")
        with np.load(path, allow_pickle=False) as arrays:
            found = dict(arrays)
    except _BROKEN as error:
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from None
    if not all(isinstance(array, np.ndarray) for array in found.values()):
        raise ValueError("has something else than arrays")
    return found


def replace_npz(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays by name, whole or not at all, in the place of what is there. Raises OSError."""
    partial = partial_of(path)
    with partial.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type] # numpy: any name is an array
    partial.replace(path)
