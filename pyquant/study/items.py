"""Results per item: columns of numbers in an npz file beside the JSON of their run."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import StudyError
from pyquant.files.npz import read_npz
from pyquant.files.output_file import write_bytes

# One array for each column, one value in it for each item.
Items = dict[str, NDArray[Any]]


def write_items(path: Path, items: Items) -> dict[str, Any]:
    """Write a sidecar, complete or not at all. The same items make the same bytes.

    path: its file, which is replaced if it exists.
    items: arrays of the same length, by the names of their columns.
    Returns: what the run's record says of it: file name, SHA-256, number of items, names of columns.
    Raises OutputError: the file cannot be written.
    """
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **items)
    data = buffer.getvalue()
    write_bytes(path, data, sources=[], force=True)
    return {
        "file": path.name,
        "sha256": hashlib.sha256(data).hexdigest(),
        "n_items": len(next(iter(items.values()))),
        "columns": list(items),
    }


def read_items(path: Path) -> Items:
    """Read a sidecar. Raises StudyError: the file is missing or broken."""
    try:
        return read_npz(path)
    except (OSError, ValueError) as error:
        raise StudyError(f"{path}: {_repair(path, error)}") from None


def problem_of(path: Path, recorded: Any) -> str | None:
    """Say what is wrong with a sidecar that a run's record names, or None."""
    try:
        data = path.read_bytes()
    except OSError as error:
        return f"{path}: {_repair(path, error)}"
    if not isinstance(recorded, dict) or hashlib.sha256(data).hexdigest() != recorded.get("sha256"):
        return f"{path}: {_repair(path, ValueError('changed since it was written'))}"
    return None


def _repair(path: Path, error: Exception) -> str:
    what = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
    return f"{what}; remove {path.stem}.json, and `pyquant study run` makes both again"
