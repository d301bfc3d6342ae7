"""Where the error sits: how far a model's weights are from another's, tensor by tensor."""

from __future__ import annotations

import os
import re
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.imatrix import ImportanceMatrix, read_imatrix
from pyquant.errors import ModelFileError
from pyquant.formulas import cosine, rmse, snr_db
from pyquant.inspect.histogram import counted_codes, counting
from pyquant.models.codebook import stored_table, tensor_codebook
from pyquant.models.difference import ModelDifference, pair_tensors
from pyquant.models.model_file import AnyModel, open_model
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_reader import Progress, TensorReader, place

SCHEMA = "pyquant.error/1"


@dataclass(frozen=True)
class Sums:
    """Sums over weights x of the base and y of the model, which add up over tensors.

    squared_error: of (x - y)^2; squared_weight: of x^2; squared_value: of y^2; zeros: weights y that
    are 0. importance, weighted_*: the same, each weight times the importance w of its column, and the
    sum of w; 0 without an importance matrix.
    """

    n_weights: int = 0
    squared_error: float = 0.0
    squared_weight: float = 0.0
    squared_value: float = 0.0
    zeros: int = 0
    importance: float = 0.0
    weighted_squared_error: float = 0.0
    weighted_squared_weight: float = 0.0

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(a + b for a, b in zip(astuple(self), astuple(other))))

    @property
    def snr_db(self) -> float | None:
        """10 log10(sum x^2 / sum (x - y)^2); None where one of them is 0."""
        return snr_db(self.squared_weight, self.squared_error)

    @property
    def weighted_snr_db(self) -> float | None:
        """The same with importance; None without."""
        return snr_db(self.weighted_squared_weight, self.weighted_squared_error)

    def to_json(self) -> dict[str, Any]:
        weighted = self.weighted_squared_error
        return {
            "n_weights": self.n_weights,
            "rmse": rmse(self.squared_error, self.n_weights) if self.n_weights else None,
            "snr_db": self.snr_db,
            "cosine": cosine(self.squared_weight, self.squared_value, self.squared_error),
            "zero_share": self.zeros / self.n_weights if self.n_weights else None,
            "weighted_rmse": rmse(weighted, self.importance) if self.importance else None,
            "weighted_snr_db": self.weighted_snr_db,
        }


@dataclass(frozen=True)
class TensorError:
    """How one tensor of the model differs from the base's.

    shape: as GGML has it, the length of a row first. largest: max |x - y|; largest_at: where, in the
    order of `shape`, None where nothing differs. entropy: of the model's codes, in bits, None where
    they are not countable.
    """

    name: str
    base_type: str
    type: str
    shape: tuple[int, ...]
    sums: Sums
    largest: float
    largest_at: list[int] | None
    entropy: float | None

    @property
    def identical(self) -> bool:
        """Whether every weight is the same, in whatever types they are stored."""
        return self.largest == 0

    @property
    def kind(self) -> str:
        """Its name without its layer: attn_q of blk.3.attn_q.weight."""
        return re.sub(r"\bblk\.\d+\.|\.weight$", "", self.name)

    @property
    def layer(self) -> int | None:
        """The number of its layer, None outside of layers."""
        match = re.search(r"\bblk\.(\d+)\.", self.name)
        return int(match[1]) if match else None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "base_type": self.base_type,
            "type": self.type,
            "shape": list(self.shape),
            "identical": self.identical,
            **self.sums.to_json(),
            "largest_error": self.largest,
            "largest_error_at": self.largest_at,
            "entropy": self.entropy,
        }


@dataclass(frozen=True)
class ErrorMap:
    """All differences between two models of one architecture. tensors: by layer and name."""

    base: str
    model: str
    imatrix: str | None
    tensors: list[TensorError]
    difference: ModelDifference

    @property
    def total(self) -> Sums:
        return sum((tensor.sums for tensor in self.tensors), Sums())

    @property
    def identical(self) -> bool:
        """Whether nothing differs: no weight, no type, no tensor, no metadata."""
        same = all(tensor.identical and tensor.base_type == tensor.type for tensor in self.tensors)
        return same and not self.difference

    def to_json(self) -> dict[str, Any]:
        """The comparison as `pyquant error --json` prints it; null where a number is infinite."""
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
    """Compares two models of one architecture, stored in any types, in one pass over both files.

    imatrix: importance matrix by whose columns errors are weighted too. Raises ModelFileError, also
    where architectures differ or no tensor is in both.
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
