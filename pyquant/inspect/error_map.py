"""Measure where the error sits: how far a model's weights are from another's, tensor by tensor."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.imatrix import ImportanceMatrix, read_imatrix
from pyquant.errors import ModelFileError
from pyquant.inspect.histogram import counted_codes, counting
from pyquant.inspect.tensor_error import Sums, TensorError
from pyquant.models.codebook import stored_table, tensor_codebook
from pyquant.models.difference import ModelDifference, pair_tensors
from pyquant.models.model_file import AnyModel, open_model
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_reader import Progress, TensorReader, place

SCHEMA = "pyquant.error/1"


@dataclass(frozen=True)
class ErrorMap:
    """All differences between two models of one architecture.

    Attributes
    ----------
    base, model, imatrix
        Paths; imatrix is None if there is none.
    tensors
        Those that were compared, by layer and name.
    difference
        Everything that differs besides the values of weights.
    """

    base: str
    model: str
    imatrix: str | None
    tensors: list[TensorError]
    difference: ModelDifference

    @property
    def total(self) -> Sums:
        """Sums over all tensors."""
        return sum((tensor.sums for tensor in self.tensors), Sums())

    @property
    def identical(self) -> bool:
        """Say whether nothing differs: no weight, no type, no tensor, no metadata."""
        same = all(tensor.identical and tensor.base_type == tensor.type for tensor in self.tensors)
        return same and not self.difference

    def to_json(self) -> dict[str, Any]:
        """Give the map as `pyquant error --json` prints it, schema pyquant.error/1."""
        return {
            "schema": SCHEMA,
            "base": self.base,
            "model": self.model,
            "imatrix": self.imatrix,
            "identical": self.identical,
            "total": self.total.to_json(),
            "tensors": [tensor.to_json() for tensor in self.tensors],
            **self.difference.to_json(),
        }


def measure_error(
    base: AnyModel,
    model: AnyModel,
    *,
    imatrix: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> ErrorMap:
    """Compare two models of one architecture, stored in any types, in one pass over both files.

    Parameters
    ----------
    base, model
        Paths, or opened models.
    imatrix
        An importance matrix, by whose columns errors are weighted too.
    threads
        None: one for each core.
    progress
        Called while it goes on.

    Raises
    ------
    ModelFileError
        A file cannot be read, the architectures differ, or no tensor is in both.
    """
    base, model = open_model(base), open_model(model)
    if base.architecture != model.architecture:
        raise ModelFileError(
            f"{model.path}: of architecture {model.architecture}, but {base.path} is {base.architecture}; "
            f"only models of one architecture can be compared"
        )
    pairs, difference = pair_tensors(base, model)
    if not pairs:
        raise ModelFileError(f"{model.path}: has no tensor of the name and shape of one in {base.path}")
    matrix = read_imatrix(imatrix) if imatrix else None
    if matrix and not any(tensor.name in matrix.weights for tensor, _ in pairs):
        raise ModelFileError(f"{matrix.path}: knows no tensor of {base.path}: made from another model?")
    table = stored_table(model)
    both = [tensor for pair in pairs for tensor in pair]
    with (
        TensorReader(base, both, threads, progress) as reader,
        TensorReader(model, [], threads, None) as model_reader,
    ):
        measured = [_measure(reader, model_reader, *pair, matrix, table) for pair in pairs]
    return ErrorMap(
        base=str(base.path),
        model=str(model.path),
        imatrix=str(imatrix) if imatrix else None,
        tensors=measured,
        difference=difference,
    )


def _measure(
    reader: TensorReader,
    model_reader: TensorReader,
    tensor: Tensor,
    other: Tensor,
    matrix: ImportanceMatrix | None,
    table: NDArray[np.int8] | None,
) -> TensorError:
    importance = matrix.of(tensor) if matrix else None
    book = tensor_codebook(other, table)
    work = counting(book) if book else {}
    result = reader.compare(tensor, model_reader, other, importance=importance, **work)
    return TensorError(
        name=tensor.name,
        base_type=tensor.type.name,
        type=other.type.name,
        shape=tensor.shape,
        sums=_sums(tensor, result, importance),
        largest=result.largest_error,
        largest_at=place(tensor, result.largest_error_at) if result.largest_error else None,
        entropy=counted_codes(other, book, [result]).entropy if book else None,
    )


def _sums(tensor: Tensor, result: _core.ComparisonResult, importance: NDArray[np.float32] | None) -> Sums:
    sums = Sums(
        tensor.n_weights, result.squared_error, result.squared_weight, result.squared_value, result.zeros
    )
    if importance is None:
        return sums
    rows_per_expert = tensor.n_rows // len(importance)
    return sums + Sums(
        importance=rows_per_expert * float(importance.sum(dtype=np.float64)),
        weighted_squared_error=result.weighted_squared_error,
        weighted_squared_weight=result.weighted_squared_weight,
    )
