"""Read the header of one file of a model: a GGUF, or a pqz file that expands to one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pyquant import _core
from pyquant.errors import ModelFileError, NotEnoughMemory
from pyquant.machine.memory import lacks_memory
from pyquant.models.pqz.pqz_file import PqzFile, is_pqz
from pyquant.models.q4_t import CodeTable
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_type import TensorType as Type


@dataclass(frozen=True)
class Shard:
    """One file of a model."""

    path: Path
    header: _core.Gguf
    tensors: list[Tensor]  # the tensors in it, in the file's order
    pqz: PqzFile | None  # the opened file where it is a pqz file, else None


def read_shard(path: Path, metadata: _core.Gguf | None = None) -> Shard:
    """Read the header of one file.

    metadata: the header that has the tables of Q4_T tensors: the first shard's. None: the header of `path`.
    Raises ModelFileError: the file cannot be read, is cut off, or has a tensor of an unknown type. The
    message names the file and the tensor.
    """
    if not is_pqz(path):
        header = _read_header(path, path)
        tensors = _tensors(path, header, metadata or header, path.stat().st_size, None)
        return Shard(path, header, tensors, None)
    pqz = PqzFile(path)
    with pqz.header() as gguf:
        header = _read_header(path, gguf)
    return Shard(path, header, _tensors(path, header, metadata or header, pqz.n_bytes, pqz), pqz)


def _read_header(path: Path, gguf: Path) -> _core.Gguf:
    """path: the file that errors name. gguf: the file that is read."""
    try:
        if problem := _problem(path):
            raise ModelFileError(f"{path}: {problem}")
        path.open("rb").close()
        return _core.Gguf.read(os.fsencode(gguf))  # type: ignore[arg-type] # a name need not be UTF-8
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        if lacks_memory(error):
            raise NotEnoughMemory(f"not enough memory for the header of {path}") from None
        reasons = [line.partition(": ")[2] or line for line in str(error).splitlines()]
        reason = reasons[0] if reasons else "the header ends early"
        raise ModelFileError(f"{path}: not a readable GGUF file: {reason}") from None


def _problem(path: Path) -> str | None:
    if path.is_file():
        return None
    if path.is_dir():
        return "a folder, not a file"
    if path.exists():
        return "a pipe or device, which is read only once, from its beginning; write it to a file first"
    return "no such file"


def _tensors(
    path: Path, header: _core.Gguf, metadata: _core.Gguf, size: int, pqz: PqzFile | None
) -> list[Tensor]:
    """size: of the GGUF, in bytes."""
    tensors = []
    for name, type_id, shape, offset, n_bytes in header.tensors():
        if 0 in shape:
            raise ModelFileError(f"{path}: tensor {name!r} is empty: its shape is {list(shape)}")
        begin = header.data_offset + offset
        if begin + n_bytes > size:
            raise ModelFileError(
                f"{path}: cut off: tensor {name!r} ends at byte {begin + n_bytes}, the file at {size}"
            )
        if pqz is not None and not pqz.holds(name, begin, n_bytes):
            raise ModelFileError(f"{path}: damaged: its index and its metadata disagree on tensor {name!r}")
        try:
            tensor_type = Type(type_id)
        except ValueError:
            raise ModelFileError(f"{path}: tensor {name!r} has the unknown type {type_id}") from None
        try:
            table = CodeTable.read(metadata, name) if tensor_type == Type.Q4_T else None
        except ValueError as error:
            raise ModelFileError(f"{path}: {error}") from None
        tensors.append(Tensor(name, tensor_type, shape, path, begin, n_bytes, table, pqz))
    return tensors
