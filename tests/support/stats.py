"""Hessian files with other values under checksums that are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pyquant import _core
from pyquant.calibration import Calibration
from pyquant.models.model_file import ModelFile


def resealed(data: bytes, file: ModelFile) -> bytes:
    """The file with checksums that fit what it is made of now. file: as it was, with the same tensors."""
    data = bytearray(data)
    *others, checksums = sorted(file.tensors, key=lambda tensor: tensor.offset)
    made = [_core.checksum(bytes(data[: file.header.data_offset]))]
    for tensor in others:
        row_bytes = tensor.n_bytes // tensor.n_rows
        for begin in range(tensor.offset, tensor.offset + tensor.n_bytes, row_bytes):
            made.append(_core.checksum(bytes(data[begin : begin + row_bytes])))
    data[checksums.offset : checksums.offset + 8 * len(made)] = np.array(made, np.uint64).tobytes()
    return bytes(data)


def with_value(stats: Path, tensor_name: str, dtype: Any, index: int, value: float) -> bytes:
    """The file with one value of a tensor changed."""
    file, data = ModelFile(stats), bytearray(stats.read_bytes())
    (tensor,) = (tensor for tensor in file.tensors if tensor.name == tensor_name)
    size = np.dtype(dtype).itemsize
    at = tensor.offset + index * size
    data[at : at + size] = np.array([value], dtype).tobytes()
    return resealed(data, file)


def everything(path: Path) -> list[Any]:
    """All that a Hessian file or an importance matrix says."""
    stats = Calibration.read(path)
    said: list[Any] = [stats.origin, stats.matrices, stats.n_tokens]
    for name in stats.matrices:
        said += [stats.counts(name).tolist(), stats.diagonal(name).tolist(), stats.why_no_hessian(name)]
        for expert in range(len(stats.counts(name)) if stats.has_hessian(name) else 0):
            hessian = stats.hessian(name, expert)
            said.append(None if hessian is None else hessian.tolist())
    return [*said, stats.kept.tokens(1 << 20).tolist() if stats.origin else None]
