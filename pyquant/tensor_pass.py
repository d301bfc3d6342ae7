"""Sending tensors through the C++ pass, with progress and errors that name them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pyquant import _core
from pyquant.errors import ModelFileError, OutputError
from pyquant.model_file import ModelFile, Tensor

# (bytes of source read so far, all of them, the tensor at work)
Progress = Callable[[int, int, str], None]


def n_threads(asked: int | None) -> int:
    """The number asked for, or the processors that this process may use."""
    return asked or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
        self._files: dict[Path, Any] = {}

    def __enter__(self) -> TensorReader:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def run(self, tensor: Tensor, **work: Any) -> _core.PassResult:
        """One pass over `tensor`; `work`: what `_core.run_pass` takes besides the tensor's place.

        Raises ModelFileError (the tensor and the weight named) and OutputError.
        """
        report = None
        if self._progress:
            before, progress = self._done, self._progress
            report = lambda n: progress(before + n, self._total, tensor.name)  # noqa: E731
        with weight_errors(self.model, tensor):
            result = _core.run_pass(
                in_file=self._file(tensor.path),
                in_offset=tensor.offset,
                n_rows=tensor.n_rows,
                n_per_row=tensor.n_per_row,
                source=_core.ggml_codec(int(tensor.type)),
                n_threads=self.threads,
                progress=report,
                **work,
            )
        self._done += tensor.n_bytes
        return result

    def _file(self, path: Path) -> int:
        if path not in self._files:
            self._files[path] = self._stack.enter_context(path.open("rb", buffering=0))
        return self._files[path].fileno()


@contextmanager
def weight_errors(model: ModelFile, tensor: Tensor) -> Iterator[None]:
    """Turns the pass's errors into pyquant's."""
    try:
        yield
    except _core.WeightError as error:
        kind, index, value = error.args
        place = []
        for length in tensor.shape:
            index, position = divmod(index, length)
            place.append(position)
        where = f"{tensor.path}: tensor {tensor.name!r}, weight {place}"
        if kind == "not finite":
            raise ModelFileError(f"{where}: {value}; a model with such weights cannot be quantized") from None
        raise ModelFileError(f"{where}: {value:g} is too large for an fp16 block scale") from None
    except OSError as error:
        if error.strerror and error.strerror.startswith("write"):
            raise OutputError(f"{os.strerror(error.errno)} while writing tensor {tensor.name!r}") from None
        raise ModelFileError(f"{tensor.path}: tensor {tensor.name!r}: {error.strerror}") from None
