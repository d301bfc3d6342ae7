"""GGUF models on disk: what is in them, whole or split."""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.errors import ModelFileError
from pyquant.files.sha256 import files_sha256
from pyquant.models.pqz.pqz_file import PqzFile, is_pqz, scratch_file
from pyquant.models.q4_t import CodeTable
from pyquant.models.tensor_type import TensorType as Type

ALIGNMENT = 32  # of tensor data: GGUF's default
UNQUANTIZED = (Type.F32, Type.F16, Type.BF16)


@dataclass(frozen=True)
class Tensor:
    """Where a tensor's weights are.

    shape: as GGML has it, the length of a row first. offset: in bytes, from the start of `path`, or of
    the GGUF that is packed there. table: of type Q4_T, what the codes stand for.
    """

    name: str
    type: Type
    shape: tuple[int, ...]
    path: Path
    offset: int
    n_bytes: int
    table: CodeTable | None = None

    @property
    def n_per_row(self) -> int:
        return self.shape[0]

    @property
    def n_rows(self) -> int:
        return self.n_weights // self.n_per_row

    @property
    def n_weights(self) -> int:
        n = 1
        for length in self.shape:
            n *= length
        return n

    def data(self) -> bytes:
        """All of its bytes. Raises ModelFileError."""
        if not is_pqz(self.path):
            with self.path.open("rb") as file:
                file.seek(self.offset)
                return file.read(self.n_bytes)
        with scratch_file() as file:
            PqzFile(self.path).expand_tensor(self.name, file.fileno(), threads=1)
            return file.read()

    def weights(self) -> NDArray[np.float32]:
        """(n_rows, n_per_row), all at once. Raises ModelFileError."""
        stored = np.frombuffer(self.data(), np.uint8).reshape(self.n_rows, -1)
        return self.decoder().decode(stored, n_per_row=self.n_per_row)

    @property
    def layer(self) -> int:
        """The block it belongs to, -1 for tensors outside the blocks."""
        match = re.match(r"blk\.(\d+)\.", self.name)
        return int(match[1]) if match else -1

    def decoder(self) -> _core.Decoder:
        """What decodes it. Raises ValueError where its type has no weights."""
        return _core.table_decoder(self.table.array()) if self.table else _core.ggml_decoder(int(self.type))


class ModelFile:
    """A GGUF model, opened for reading: all shards of it if it is split.

    paths: the file, or all shards in order. tensors: by layer and name, the order in which
    llama-quantize writes them.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Reads the headers. Raises ModelFileError naming the file and what is wrong in it."""
        first = Path(path)
        self.header, tensors = read_shard(first)
        self.paths = [first, *self._other_shards(first)]
        for shard in self.paths[1:]:
            tensors += read_shard(shard, self.header)[1]
        names = {tensor.name for tensor in tensors}
        if len(names) < len(tensors):
            raise ModelFileError(f"{first}: a tensor is in more than one shard")
        if len(self.paths) > 1 and self.get("split.tensors.count", len(tensors)) != len(tensors):
            raise ModelFileError(
                f"{first}: {self.get('split.tensors.count')} tensors announced, {len(tensors)} in the shards"
            )
        self.tensors = sorted(tensors, key=lambda tensor: (tensor.layer, tensor.name.encode()))

    @property
    def path(self) -> Path:
        """The file, or the first shard."""
        return self.paths[0]

    @cached_property
    def keys(self) -> frozenset[str]:
        """The metadata keys."""
        return frozenset(self.header.keys())

    def get(self, key: str, default: Any = None) -> Any:
        """A metadata value; arrays come as numpy arrays, or lists of str."""
        return self.header.value(key) if key in self.keys else default

    @property
    def architecture(self) -> str:
        """`general.architecture`. Raises ModelFileError where it is missing."""
        architecture = self.get("general.architecture")
        if not isinstance(architecture, str) or not architecture.isprintable():
            raise ModelFileError(f"{self.path}: no 'general.architecture' in its metadata: not a model")
        return architecture

    def hyperparameter(self, name: str, default: int = 0) -> int:
        """An integer under the architecture's prefix; the first layer's where layers differ."""
        value = self.get(f"{self.architecture}.{name}", default)
        if isinstance(value, np.ndarray) and value.size:
            value = value[0]
        if not isinstance(value, int | float | np.number) or not 0 <= value < 2**32:
            raise ModelFileError(
                f"{self.path}: {self.architecture}.{name} is {reprlib.repr(value)}, "
                f"expected an integer below 2^32"
            )
        return int(value)

    @property
    def n_bytes(self) -> int:
        """The size of all its files."""
        return sum(path.stat().st_size for path in self.paths)

    @property
    def n_weights(self) -> int:
        return sum(tensor.n_weights for tensor in self.tensors)

    def sha256(self, cancelled: Callable[[], bool] = lambda: False) -> str:
        """The hash of the file as sha256sum prints it; of all shards, one after the other."""
        return files_sha256(self.paths, cancelled)

    def _other_shards(self, first: Path) -> list[Path]:
        n_shards = self.get("split.count", 0)
        if not isinstance(n_shards, int) or n_shards < 2:
            return []
        match = re.fullmatch(r"(.*)-(\d{5})-of-(\d{5})(\.\w+)", first.name)
        if not match or int(match[3]) != n_shards:
            raise ModelFileError(
                f"{first}: one of {n_shards} shards, so its name must end in "
                f"-00001-of-{n_shards:05}.gguf for the others to be found"
            )
        if int(match[2]) != 1:
            raise ModelFileError(
                f"{first}: shard {int(match[2])} of {n_shards}; give the first one, "
                f"{match[1]}-00001-of-{n_shards:05}{match[4]}"
            )
        return [
            first.with_name(f"{match[1]}-{i:05}-of-{n_shards:05}{match[4]}") for i in range(2, n_shards + 1)
        ]


def read_shard(path: Path, metadata: _core.Gguf | None = None) -> tuple[_core.Gguf, list[Tensor]]:
    """The header of one file, packed or not, and its tensors.

    metadata: where tables of tensors are, the first shard's header; None: in this one. Raises
    ModelFileError.
    """
    if not is_pqz(path):
        header = _read_header(path, path)
        return header, _tensors(path, header, metadata or header, path.stat().st_size)
    packed = PqzFile(path)
    with packed.header() as stock:
        header = _read_header(path, stock)
    return header, _tensors(path, header, metadata or header, packed.n_bytes)


def _read_header(path: Path, stock: Path) -> _core.Gguf:
    """path: what is said in errors. stock: what is read."""
    try:
        if not path.is_file():
            kind = "a folder, not a file" if path.is_dir() else "no such file"
            raise ModelFileError(f"{path}: {kind}")
        path.open("rb").close()
        return _core.Gguf.read(os.fsencode(stock))
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        reasons = [line.partition(": ")[2] or line for line in str(error).splitlines()]
        reason = reasons[0] if reasons else "the header ends early"
        raise ModelFileError(f"{path}: not a readable GGUF file: {reason}") from None


def _tensors(path: Path, header: _core.Gguf, metadata: _core.Gguf, size: int) -> list[Tensor]:
    tensors = []
    for name, type_id, shape, offset, n_bytes in header.tensors():
        if 0 in shape:
            raise ModelFileError(f"{path}: tensor {name!r} is empty: its shape is {list(shape)}")
        begin = header.data_offset + offset
        if begin + n_bytes > size:
            raise ModelFileError(
                f"{path}: cut off: tensor {name!r} ends at byte {begin + n_bytes}, the file at {size}"
            )
        try:
            kind = Type(type_id)
        except ValueError:
            raise ModelFileError(f"{path}: tensor {name!r} has the unknown type {type_id}") from None
        try:
            table = CodeTable.read(metadata, name) if kind == Type.Q4_T else None
        except ValueError as error:
            raise ModelFileError(f"{path}: {error}") from None
        tensors.append(Tensor(name, kind, shape, path, begin, n_bytes, table))
    return tensors


def padded(size: int) -> int:
    """Bytes that a tensor of this many takes up in a file."""
    return -(-size // ALIGNMENT) * ALIGNMENT
