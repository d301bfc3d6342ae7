"""Send tensors of a model through a pass of the C++ extension, with progress and errors that name them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.errors import ModelFileError, NotEnoughMemory, OutputError, UnreadableFile
from pyquant.machine.memory import threads_with_room
from pyquant.models.model_file import ModelFile
from pyquant.models.pqz.pqz_file import scratch_file
from pyquant.models.progress import Progress
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_type import TensorType as Type

FLOATS = _core.ggml_decoder(int(Type.F32))


class TensorReader:
    """Runs passes over tensors of one model; a context manager that holds the model's files open."""

    def __init__(
        self, model: ModelFile, tensors: list[Tensor], threads: int | None, progress: Progress | None
    ) -> None:
        """Prepare to read.

        tensors: all tensors that will be read, for progress: once for each time.
        threads: threads of a pass; None: one for each core.
        """
        self.model = model
        self.threads = threads_with_room(threads)
        self._progress = progress
        self._total = sum(tensor.n_bytes for tensor in tensors)
        self._done = 0
        self._stack = ExitStack()
        self._files: dict[Path, IO[bytes]] = {}
        self._expanded: dict[Path, str] = {}  # of pqz files, the tensor that is expanded in `_files`

    def __enter__(self) -> TensorReader:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def run(
        self, tensor: Tensor, *, weights: NDArray[np.float32] | None = None, **work: Any
    ) -> _core.PassResult:
        """Run one pass over a tensor, or over weights in its place.

        tensor: a tensor of the model, or an expert's part of one.
        weights: (n_rows, n_per_row) float32: read instead of the tensor's own.
        work: what `_core.run_pass` takes besides the tensor's place.
        Raises ModelFileError: a weight cannot be used, or the file cannot be read. The message names tensor
        and weight. OutputError: the result cannot be written.
        """
        with weight_errors(self.model, tensor):
            place = self._source(tensor) if weights is None else self._in_memory(tensor, weights)
            result = _core.run_pass(**place, **work)
        self._done += tensor.n_bytes
        return result

    def skip(self, tensor: Tensor) -> None:
        """Count a tensor as read."""
        self._done += tensor.n_bytes

    def check(self, tensor: Tensor, weights: NDArray[np.float32]) -> None:
        """Refuse weights that no pass takes, and count the tensor as read. Errors are those of `run`."""
        self.run(tensor, weights=weights, check=True)

    def positions(
        self, tensor: Tensor, weights: NDArray[np.float32], values: NDArray[np.int8]
    ) -> NDArray[np.float64]:
        """Find where a matrix's weights lie, in multiples of their block's scale.

        weights: (n_per_row,) float32: how much the squared error of each column counts.
        values: (16,) int8: the values that scales are chosen for.
        Returns: what `_core.find_positions` returns.
        Raises ModelFileError: a weight cannot be used, or the file cannot be read.
        """
        with weight_errors(self.model, tensor):
            result = _core.find_positions(**self._source(tensor), weights=weights, values=values)
        self._done += tensor.n_bytes
        return result

    def compare(
        self, tensor: Tensor, other_reader: TensorReader, other: Tensor, **work: Any
    ) -> _core.ComparisonResult:
        """Run one pass over a tensor and over another model's tensor of the same shape.

        tensor: a tensor of this reader's model.
        other_reader, other: the other model's reader and tensor.
        work: what `_core.compare` takes besides the tensors' places.
        Raises ModelFileError: a weight of one of them cannot be used, or a file cannot be read.
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
                progress=self._report(tensor, tensor.n_bytes),
                **work,
            )
            if math.isfinite(result.squared_error + result.squared_weight + result.squared_value):
                self._done += tensor.n_bytes + other.n_bytes
                return result
        except OSError as error:
            failure = str(error.strerror)
        for reader, broken in ((self, tensor), (other_reader, other)):
            reader.run(broken, check=True)  # says in which file, and where
        raise ModelFileError(f"{tensor.path}, {other.path}: tensor {tensor.name!r}: {failure}")

    def _report(self, tensor: Tensor, n_bytes: int) -> Callable[[int], None] | None:
        """Make what a pass calls with the bytes it has read; n_bytes: all that it reads for the tensor."""
        if not self._progress:
            return None
        before, progress = self._done, self._progress
        return lambda n: progress(before + n * tensor.n_bytes // max(n_bytes, 1), self._total, tensor.name)

    def _source(self, tensor: Tensor) -> dict[str, Any]:
        """Give what a pass reads."""
        in_file, in_offset = self._stored(tensor)
        rows = self._rows(tensor, tensor.n_bytes)
        return {"in_file": in_file, "in_offset": in_offset, "source": tensor.reader(), **rows}

    def _in_memory(self, tensor: Tensor, weights: NDArray[np.float32]) -> dict[str, Any]:
        return {"weights": weights, "source": FLOATS, **self._rows(tensor, weights.nbytes)}

    def _rows(self, tensor: Tensor, n_bytes: int) -> dict[str, Any]:
        return {
            "n_rows": tensor.n_rows,
            "n_per_row": tensor.n_per_row,
            "n_threads": self.threads,
            "progress": self._report(tensor, n_bytes),
        }

    def _stored(self, tensor: Tensor) -> tuple[int, int]:
        """Give the file and the offset where a tensor's data are; of a pqz file, expanded until the next."""
        path, pqz = tensor.path, tensor.pqz
        if path not in self._files:
            opened = scratch_file() if pqz else path.open("rb", buffering=0)
            self._files[path] = self._stack.enter_context(opened)
        file = self._files[path].fileno()
        if pqz is None:
            return file, tensor.offset
        if self._expanded.get(path) != tensor.name:
            self._expanded.pop(path, None)
            pqz.expand_tensor(tensor.name, file, self.threads)
            self._expanded[path] = tensor.name
        return file, tensor.offset - pqz.begin_of(tensor.name)


def place(tensor: Tensor, index: int) -> list[int]:
    """Give the coordinates of the index-th weight, in the order of the tensor's shape: column first."""
    coordinates = []
    for length in tensor.shape:
        index, position = divmod(index, length)
        coordinates.append(position)
    return coordinates


@contextmanager
def weight_errors(model: ModelFile, tensor: Tensor) -> Iterator[None]:
    """Turn the errors of a pass over a tensor into pyquant's, which name the tensor and the weight."""
    try:
        yield
    except _core.WeightError as error:
        where = f"{tensor.path}: tensor {tensor.name!r}, weight {place(tensor, error.index)}"
        if not math.isfinite(error.value):
            raise ModelFileError(f"{where}: {error.value}; weights have to be finite") from None
        raise ModelFileError(
            f"{where}: {error.value:g} is too large for the new type; BF16 and F32 hold it"
        ) from None
    except RuntimeError as error:  # an assertion of GGML's
        raise ModelFileError(
            f"{tensor.path}: tensor {tensor.name!r}: GGML cannot quantize it: {error}"
        ) from None
    except MemoryError:
        raise NotEnoughMemory(
            f"{tensor.path}: not enough memory for tensor {tensor.name!r} of {tensor.n_bytes:,} bytes; "
            f"fewer --threads take less"
        ) from None
    except _core.WriteError as error:
        raise OutputError(f"{error.strerror} while writing tensor {tensor.name!r}") from None
    except OSError as error:
        raise UnreadableFile(f"{tensor.path}: tensor {tensor.name!r}: {error.strerror}") from None
