"""Sending tensors through the C++ pass, with progress and errors that name them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.errors import ModelFileError, OutputError
from pyquant.machine import n_threads
from pyquant.models.model_file import ModelFile, Tensor
from pyquant.models.pqz.pqz_file import PqzFile, is_pqz, scratch_file
from pyquant.models.tensor_type import TensorType as Type

# (bytes of source read so far, all of them, the tensor at work)
Progress = Callable[[int, int, str], None]


class TensorReader:
    """Runs passes over tensors of one model; a context manager that holds its files open."""

    def __init__(
        self, model: ModelFile, tensors: list[Tensor], threads: int | None, progress: Progress | None
    ) -> None:
        self.model = model
        self.threads = n_threads(threads)
        self._progress = progress
        self._total = sum(tensor.n_bytes for tensor in tensors)
        self._done = 0
        self._stack = ExitStack()
        self._files: dict[Path, tuple[IO[bytes], PqzFile | None]] = {}

    def __enter__(self) -> TensorReader:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def run(self, tensor: Tensor, **work: Any) -> _core.PassResult:
        """One pass over `tensor`; `work`: what `_core.run_pass` takes besides the tensor's place.

        Raises ModelFileError (the tensor and the weight named) and OutputError.
        """
        with weight_errors(self.model, tensor):
            result = _core.run_pass(**self._source(tensor), **work)
        self._done += tensor.n_bytes
        return result

    def run_weights(self, tensor: Tensor, weights: NDArray[np.float32], **work: Any) -> _core.PassResult:
        """The same over other weights than `tensor` has, (n_rows, n_per_row)."""
        as_floats = replace(tensor, type=Type.F32, n_bytes=weights.nbytes)
        with weight_errors(self.model, tensor), scratch_file(memoryview(weights).cast("B")) as file:
            rows = self._rows(as_floats, tensor.n_bytes)
            result = _core.run_pass(in_file=file.fileno(), in_offset=0, **rows, **work)
        self._done += tensor.n_bytes
        return result

    def positions(
        self, tensor: Tensor, weights: NDArray[np.float32], values: NDArray[np.int8]
    ) -> NDArray[np.float64]:
        """Where a matrix's weights lie in multiples of their block's scale, for `pyquant.learn`.

        weights: (n_per_row,) of squared errors. values: (16,), for which scales are chosen. Returns what
        `_core.find_positions` does. Raises ModelFileError.
        """
        with weight_errors(self.model, tensor):
            result = _core.find_positions(**self._source(tensor), weights=weights, values=values)
        self._done += tensor.n_bytes
        return result

    def compare(
        self, tensor: Tensor, other_reader: TensorReader, other: Tensor, **work: Any
    ) -> _core.ComparisonResult:
        """One pass over `tensor` and over another model's tensor of the same shape.

        work: what `_core.compare` takes besides the tensors' places. Raises ModelFileError.
        """
        failure = "weights too large to be squared in float32"
        try:
            base_file, base_offset = self._stored(tensor)
            file, offset = other_reader._stored(other)
            result = _core.compare(
                base_file=base_file,
                base_offset=base_offset,
                base=tensor.decoder(),
                file=file,
                offset=offset,
                decoder=other.decoder(),
                n_rows=tensor.n_rows,
                n_per_row=tensor.n_per_row,
                n_threads=self.threads,
                progress=self._report(tensor),
                **work,
            )
            if math.isfinite(result.squared_error + result.squared_weight + result.squared_value):
                self._done += tensor.n_bytes + other.n_bytes
                return result
        except OSError as error:
            failure = error.strerror
        for reader, broken in ((self, tensor), (other_reader, other)):
            reader.run(broken, check=True)  # says in which file, and where
        raise ModelFileError(f"{tensor.path}, {other.path}: tensor {tensor.name!r}: {failure}")

    def _report(self, tensor: Tensor, counted: int | None = None) -> Callable[[int], None] | None:
        """counted: the bytes of source that all of the tensor stands for, if not its own."""
        if not self._progress:
            return None
        before, progress = self._done, self._progress
        counted = tensor.n_bytes if counted is None else counted
        return lambda n: progress(before + n * counted // max(tensor.n_bytes, 1), self._total, tensor.name)

    def _source(self, tensor: Tensor) -> dict[str, Any]:
        """What a pass over it reads."""
        in_file, in_offset = self._stored(tensor)
        return {"in_file": in_file, "in_offset": in_offset, **self._rows(tensor)}

    def _rows(self, tensor: Tensor, counted: int | None = None) -> dict[str, Any]:
        return {
            "n_rows": tensor.n_rows,
            "n_per_row": tensor.n_per_row,
            "source": tensor.decoder(),
            "n_threads": self.threads,
            "progress": self._report(tensor, counted),
        }

    def _stored(self, tensor: Tensor) -> tuple[int, int]:
        """The file and offset where its data are; of a packed model, expanded until the next call."""
        file, packed = self._opened(tensor.path)
        if packed is None:
            return file.fileno(), tensor.offset
        packed.expand_tensor(tensor.name, file.fileno(), self.threads)
        return file.fileno(), 0

    def _opened(self, path: Path) -> tuple[IO[bytes], PqzFile | None]:
        """The file, or a packed one beside a place to expand its tensors."""
        if path not in self._files:
            packed = PqzFile(path) if is_pqz(path) else None
            file = self._stack.enter_context(scratch_file() if packed else path.open("rb", buffering=0))
            self._files[path] = file, packed
        return self._files[path]


def place(tensor: Tensor, index: int) -> list[int]:
    """The coordinates of the index-th weight, in the order of the tensor's shape: column first."""
    coordinates = []
    for length in tensor.shape:
        index, position = divmod(index, length)
        coordinates.append(position)
    return coordinates


@contextmanager
def weight_errors(model: ModelFile, tensor: Tensor) -> Iterator[None]:
    """Turns the pass's errors into pyquant's."""
    try:
        yield
    except _core.WeightError as error:
        where = f"{tensor.path}: tensor {tensor.name!r}, weight {place(tensor, error.index)}"
        if not math.isfinite(error.value):
            raise ModelFileError(f"{where}: {error.value}; weights have to be finite") from None
        raise ModelFileError(f"{where}: {error.value:g} is too large for fp16") from None
    except _core.WriteError as error:
        raise OutputError(f"{error.strerror} while writing tensor {tensor.name!r}") from None
    except OSError as error:
        raise ModelFileError(f"{tensor.path}: tensor {tensor.name!r}: {error.strerror}") from None
