"""Describe a tensor of a model file: its type, its shape, and where its bytes are."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.models.pqz.pqz_file import PqzFile, scratch_file
from pyquant.models.q4_t import CodeTable
from pyquant.models.tensor_type import TensorType as Type

ALIGNMENT = 32  # bytes; GGUF's default for tensor data
UNQUANTIZED = (Type.F32, Type.F16, Type.BF16)


@dataclass(frozen=True)
class Tensor:
    """A tensor, and where its weights are.

    Attributes
    ----------
    name
        As the model file has it: "blk.3.attn_q.weight".
    type
        The type of its blocks.
    shape
        Lengths in GGML's order: the length of a row comes first.
    path
        The file that holds its data.
    offset, n_bytes
        Where its data begin, in bytes from the start of the GGUF, and how long they are. The GGUF is
        `path`, or what the pqz file at `path` expands to.
    table
        What the codes stand for; only for type Q4_T.
    pqz
        The opened file where `path` is a pqz file, else None.
    """

    name: str
    type: Type
    shape: tuple[int, ...]
    path: Path
    offset: int
    n_bytes: int
    table: CodeTable | None = None
    pqz: PqzFile | None = field(default=None, compare=False, repr=False)

    @property
    def n_per_row(self) -> int:
        """Weights in a row."""
        return self.shape[0]

    @property
    def n_rows(self) -> int:
        """Rows, those of all experts together."""
        return self.n_weights // self.n_per_row

    @property
    def n_weights(self) -> int:
        """Weights."""
        n = 1
        for length in self.shape:
            n *= length
        return n

    @property
    def n_experts(self) -> int:
        """Matrices of equal shape in it: 1 but for tensors of three dimensions."""
        return self.shape[2] if len(self.shape) > 2 else 1

    @property
    def has_weights(self) -> bool:
        """Say whether its type can be decoded to weights; integers cannot."""
        try:
            self.decoder()
        except ValueError:
            return False
        return True

    @property
    def layer(self) -> int:
        """The number of its layer; -1 for tensors outside of layers."""
        match = re.match(r"blk\.(\d+)\.", self.name)
        return int(match[1]) if match else -1

    def data(self) -> bytes:
        """Read all of its bytes.

        Raises
        ------
        ModelFileError
            The pqz file is damaged there.
        """
        if self.pqz is None:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                return file.read(self.n_bytes)
        with scratch_file() as file:
            self.pqz.expand_tensor(self.name, file.fileno(), threads=1)
            return file.read()

    def stored_rows(self) -> NDArray[np.uint8]:
        """Give its bytes as they are stored, (n_rows, row_bytes): mapped where it is in a GGUF.

        Raises
        ------
        ModelFileError
            The pqz file is damaged there.
        """
        if self.pqz is None:
            mapped = np.memmap(self.path, np.uint8, "r", self.offset, (self.n_bytes,))
            return mapped.reshape(self.n_rows, -1)
        return np.frombuffer(self.data(), np.uint8).reshape(self.n_rows, -1)

    def weights(self) -> NDArray[np.float32]:
        """Read and decode all of its weights.

        Returns
        -------
        (n_rows, n_per_row) float32

        Raises
        ------
        ModelFileError
            The pqz file is damaged there.
        """
        stored = np.frombuffer(self.data(), np.uint8).reshape(self.n_rows, -1)
        return self.decoder().decode(stored, n_per_row=self.n_per_row)

    def reader(self) -> _core.Decoder:
        """Make what reads its rows for a copy: of any type, those without weights too."""
        return self.decoder() if self.has_weights else _core.number_decoder(int(self.type))

    def decoder(self) -> _core.Decoder:
        """Make what decodes it.

        Raises
        ------
        ValueError
            Its type holds no weights.
        """
        return _core.table_decoder(self.table.array()) if self.table else _core.ggml_decoder(int(self.type))


def file_bytes(header: _core.Gguf) -> int:
    """Count the bytes of a file that has a header, and its tensors."""
    return len(header.header()) + sum(padded(size) for _, _, _, _, size in header.tensors())


def padded(size: int) -> int:
    """Count the bytes that a tensor of `size` bytes takes up in a file."""
    return -(-size // ALIGNMENT) * ALIGNMENT
