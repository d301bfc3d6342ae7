"""Measure what each type would do to the outputs of each tensor, on some of its rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.calibration import Calibration
from pyquant.errors import ModelFileError
from pyquant.machine.cpu import n_threads
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_type import TensorType as Type
from pyquant.rounding.factors import GPTQ_TYPES, Factors, Matrix, Together, matrices
from pyquant.schemes.dampening import ON_ITS_OWN

ROWS = 128  # of a tensor, spread evenly: errors of types beside each other are then known to a few percent
EXPERTS = 8  # of a tensor, as evenly
ALONE = (1, 1, 1)  # columns that go together without error feedback

# (tensors done, all tensors)
Progress = Callable[[int, int], None]

# Squared errors of outputs by tensor and type: the mean over inputs, summed over rows and experts.
TypeErrors = Mapping[str, Mapping[Type, float]]


def measure_type_errors(
    model: ModelFile,
    calibration: Calibration,
    candidates: Mapping[str, Sequence[Type]],
    *,
    output_side: bool = True,
    threads: int | None = None,
    progress: Progress | None = None,
) -> TypeErrors:
    """Round some rows of each tensor to each of its candidate types, by GPTQ where that is possible.

    An error e of a row counts e H e^T, H the Hessian statistics of what enters: what it adds to the squared
    error of the row's output. Rows that are looked up are outputs themselves: H is the output-side Hessian,
    its diagonal's mean made 1. Unknown, H is the identity. Experts count by the tokens that reach them.

    candidates: the types to try, by the tensor's name. The type that a tensor has costs nothing.
    output_side: whether output-side Hessians will be used.
    progress: called with tensors done and all tensors.
    Returns: by tensor and type: the squared error of the tensor's outputs, the mean over inputs, summed over
    rows and experts.
    Raises ModelFileError: a weight cannot be rounded, or Hessian statistics are singular.
    """
    tensors = [tensor for tensor in model.tensors if tensor.name in candidates]
    inputs = {name: calibration.input_of(name) for name in calibration.matrices}
    # Tensors that share an input one after the other, so that its factors are made once.
    tensors.sort(key=lambda tensor: inputs.get(tensor.name, tensor.name))
    pieces = {
        tensor.name: list(_pieces(tensor, candidates[tensor.name], calibration.loads(tensor)))
        for tensor in tensors
    }
    factored = [piece.matrix for tensor in tensors for piece in pieces[tensor.name] if piece.by_gptq]
    errors: dict[str, dict[Type, float]] = {}
    with (
        Factors(calibration, ON_ITS_OWN, factored, threads, output_side=output_side) as factors,
        ThreadPoolExecutor(n_threads(threads)) as pool,
    ):
        for i, tensor in enumerate(tensors):
            of_types = errors[tensor.name] = dict.fromkeys(candidates[tensor.name], 0.0)
            for piece in pieces[tensor.name]:
                weights, encoders = _rows(tensor, piece), _encoders(piece, factors)
                hessian = _hessian(calibration, factors, piece.matrix)
                found = pool.map(lambda encoder: _error(encoder, weights, hessian), encoders)  # noqa: B023
                try:
                    for type_, error in zip(piece.types, found):
                        of_types[type_] += piece.stands_for * error
                except _core.WeightError as error:
                    row = int(piece.rows[error.index // tensor.n_per_row])
                    raise ModelFileError(
                        f"{tensor.path}: tensor {tensor.name!r}, row {row}: a weight of {error.value:g} "
                        f"cannot be rounded"
                    ) from None
            if progress:
                progress(i + 1, len(tensors))
    return errors


@dataclass(frozen=True)
class _Piece:
    """Rows of a matrix, to be rounded to types that share a factor.

    stands_for: how many rows of the tensor each of them stands for, times how much its expert counts.
    """

    matrix: Matrix
    types: list[Type]
    rows: NDArray[np.int64]
    stands_for: float

    @property
    def by_gptq(self) -> bool:
        return self.matrix.together != ALONE


def _pieces(tensor: Tensor, types: Sequence[Type], loads: NDArray[np.float64]) -> Iterator[_Piece]:
    of_columns: dict[Together, list[Type]] = {}
    for type_ in types:
        if type_ != tensor.type:
            together = _core.columns_together(int(type_)) if type_ in GPTQ_TYPES else ALONE
            of_columns.setdefault(together, []).append(type_)
    n_experts = tensor.n_rows // tensor.shape[1]
    experts = _spread(n_experts, EXPERTS)
    rows = _spread(tensor.shape[1], -(-ROWS // len(experts)))
    total = loads[experts].sum()  # a sample of experts stands for all tokens; for rows where none reaches it
    shares = loads[experts] / total if total else np.full(len(experts), 1 / len(experts))
    for expert, share in zip(experts, shares):
        if not share:
            continue
        for together, sharing in of_columns.items():
            matrix = list(matrices(tensor, together))[expert]
            yield _Piece(matrix, sharing, rows, share * tensor.n_rows / len(rows))


def _spread(n: int, most: int) -> NDArray[np.int64]:
    """Give at most so many of n numbers, evenly spread."""
    count = min(n, most)
    return (np.arange(count) * n + n // 2) // count


def _rows(tensor: Tensor, piece: _Piece) -> NDArray[np.float32]:
    """Read some rows of a matrix; of a pqz file the whole tensor is expanded for it."""
    rows = piece.matrix.expert * tensor.shape[1] + piece.rows
    if tensor.pqz is not None:
        return np.ascontiguousarray(tensor.weights()[rows])
    n_bytes = tensor.n_bytes // tensor.n_rows
    with tensor.path.open("rb") as file:
        stored = b"".join(
            os.pread(file.fileno(), n_bytes, tensor.offset + int(row) * n_bytes) for row in rows
        )
    return tensor.decoder().decode(
        np.frombuffer(stored, np.uint8).reshape(len(rows), n_bytes), n_per_row=tensor.n_per_row
    )


def _hessian(calibration: Calibration, factors: Factors, matrix: Matrix) -> NDArray[np.float32]:
    """(n_in, n_in) or, of the diagonal alone, (n_in,): what an error of a row is multiplied by."""
    tensor, expert = matrix.tensor, matrix.expert
    if factors.looks_up(tensor.name):
        of_outputs = calibration.output_hessian(tensor.name)
        assert of_outputs is not None
        return of_outputs * np.float32(len(of_outputs) / np.trace(of_outputs, dtype=np.float64))
    if tensor.name not in calibration.matrices:
        return np.ones(tensor.n_per_row, np.float32)
    hessian = calibration.hessian(tensor.name, expert)
    if hessian is not None:
        return hessian
    diagonals = calibration.diagonal(tensor.name).reshape(-1, tensor.n_per_row)
    return diagonals[min(expert, len(diagonals) - 1)]


def _encoders(piece: _Piece, factors: Factors) -> list[_core.Encoder]:
    if not piece.by_gptq:
        return [_core.ggml_encoder(int(type_)) for type_ in piece.types]
    factor = factors.of(piece.matrix)
    return [_core.gptq_encoder(int(type_), factor) for type_ in piece.types]


def _error(encoder: _core.Encoder, weights: NDArray[np.float32], hessian: NDArray[np.float32]) -> float:
    importance = None if hessian.ndim == 2 else hessian
    stored = encoder.encode(weights, np.diagonal(hessian).copy() if importance is None else importance)
    errors = weights - encoder.decode(stored, n_per_row=weights.shape[1])
    return float(np.vdot(errors @ hessian if hessian.ndim == 2 else errors * hessian, errors))
