"""Write and read the values of a Hessian file row by row, each row with a checksum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.errors import ModelFileError, UnreadableFile
from pyquant.files.output_file import OutputFile
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_type import TensorType as Type

CHECKSUMS = "checksums"  # the last tensor: XXH3 of the header, then of each row of the tensors before it


def add_checksums(header: _core.Gguf) -> None:
    """Add the tensor for checksums to a header that has all other tensors."""
    n_rows = sum(_n_rows(shape) for _, _, shape, _, _ in header.tensors())
    header.add_tensor(CHECKSUMS, Type.I64, [1 + n_rows])


def _n_rows(shape: Iterable[int]) -> int:
    _, *others = shape
    return int(np.prod(others, dtype=np.int64))


class RowWriter:
    """Writes a Hessian file: its header at once, then rows, then their checksums."""

    def __init__(self, file: OutputFile, header: _core.Gguf) -> None:
        begin = header.header()
        self._file = file
        self._places: dict[str, tuple[int, int, int]] = {}  # offset, bytes of a row, number of the first
        first = 1
        for name, _, shape, offset, size in header.tensors():
            n_rows = _n_rows(shape)
            self._places[name] = len(begin) + offset, size // n_rows, first
            first += n_rows
        self._checksums = np.zeros(self._places[CHECKSUMS][2], np.uint64)
        self._checksums[0] = _core.checksum(begin)
        file.write(begin, 0)

    def write(self, tensor: str, row: int, values: NDArray[Any]) -> None:
        """Write one row of a tensor."""
        offset, row_bytes, first = self._places[tensor]
        data = values.data.cast("B")
        assert len(data) == row_bytes
        self._file.write(data, offset + row * row_bytes)
        self._checksums[first + row] = _core.checksum(data)

    def finish(self) -> None:
        """Write the checksums, when all rows are written."""
        offset, _, _ = self._places[CHECKSUMS]
        self._file.write(self._checksums.data.cast("B"), offset)


class RowReader:
    """Reads rows of a Hessian file, and compares them with their checksums."""

    def __init__(self, file: ModelFile) -> None:
        """Read the checksums and check the header. Raises ModelFileError: the header is damaged."""
        self.tensors = {tensor.name: tensor for tensor in file.tensors}
        if not file.tensors:
            raise ModelFileError(f"{file.path}: has no tensors, so no checksums either: it is damaged")
        *others, checksums = sorted(file.tensors, key=lambda tensor: tensor.offset)
        ends = np.cumsum([1, *(tensor.n_rows for tensor in others)])
        self._first = {tensor.name: int(first) for tensor, first in zip(others, ends)}
        fits = checksums.name == CHECKSUMS and checksums.type is Type.I64 and len(file.paths) == 1
        if not fits or checksums.n_weights != ends[-1]:
            raise ModelFileError(f"{file.path}: its checksums do not fit its tensors: it is damaged")
        self._checksums: NDArray[np.uint64] = np.frombuffer(checksums.data(), np.uint64)
        with file.path.open("rb") as opened:
            if _core.checksum(opened.read(file.header.data_offset)) != self._checksums[0]:
                raise ModelFileError(f"{file.path}: its header is damaged: it has another checksum")

    @property
    def digest(self) -> bytes:
        """All checksums: they tell a file from others."""
        return self._checksums.tobytes()

    def read(self, name: str, dtype: Any, first: int = 0, n_rows: int | None = None) -> NDArray[Any]:
        """Read rows of a tensor.

        first, n_rows: which rows; None: all from the first on.
        Returns (n_rows, n_per_row).
        Raises UnreadableFile: a row has another checksum.
        """
        tensor = self.tensors[name]
        n_rows = tensor.n_rows - first if n_rows is None else n_rows
        row_bytes = tensor.n_bytes // tensor.n_rows
        n = n_rows * row_bytes // np.dtype(dtype).itemsize
        values = np.fromfile(tensor.path, dtype, n, offset=tensor.offset + first * row_bytes)
        values = values.reshape(n_rows, -1)
        for number, row in enumerate(values, first):
            self._check(tensor, number, row)
        return values

    def check(self) -> None:
        """Compare all rows with their checksums. Raises UnreadableFile: a row has another one."""
        for name in self._first:
            for number in range(self.tensors[name].n_rows):
                self.read(name, np.uint8, number, 1)

    def _check(self, tensor: Tensor, number: int, row: NDArray[Any]) -> None:
        if _core.checksum(row.data) != self._checksums[self._first[tensor.name] + number]:
            raise UnreadableFile(f"{tensor.path}: tensor {tensor.name!r} is damaged: it has another checksum")
