"""Prepare GPTQ: the Hessian of each matrix's input, factorized."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.calibration import Calibration
from pyquant.errors import ModelFileError
from pyquant.machine.cpu import n_threads
from pyquant.machine.memory import require_memory
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_name import kind_of
from pyquant.models.tensor_type import TensorType as Type
from pyquant.schemes.dampening import FIRST_TOKEN

# The types that csrc/gptq/formats has a format for.
GPTQ_TYPES = tuple(Type(number) for number in _core.gptq_types())
# Those whose codes stand for several columns: points of a grid.
GRID_TYPES = tuple(type_ for type_ in GPTQ_TYPES if _core.columns_together(int(type_))[0] > 1)

BYTES = 14  # for each element of a Hessian: read, decomposed in double precision, and its factor

# The matrices that make values, which attention mixes.
MIXED = ("attn_v", "attn_qkv")

KEPT = 3  # factors: in a file's order attn_k, attn_q and attn_v share one and have another between them


# Columns that are rounded together, that share a scale, and that share a block.
Together = tuple[int, int, int]


@dataclass(frozen=True)
class Matrix:
    """A matrix to be rounded: a tensor, or an expert's part of one."""

    tensor: Tensor  # the matrix as a tensor of two dimensions
    expert: int  # its number among the tensor's experts
    together: Together


def matrices(tensor: Tensor, together: Together) -> Iterator[Matrix]:
    """Cut a tensor into its matrices, one for each expert."""
    n_experts = tensor.n_rows // tensor.shape[1]
    for expert in range(n_experts):
        offset = tensor.offset + expert * (tensor.n_bytes // n_experts)
        part = replace(tensor, shape=tensor.shape[:2], offset=offset, n_bytes=tensor.n_bytes // n_experts)
        yield Matrix(part, expert, together)


def is_mixed(calibration: Calibration, name: str) -> bool:
    """Say whether what a matrix makes of tokens, or one with the same input, is mixed by attention."""
    return any(kind_of(matrix) in MIXED for matrix in calibration.sharing(name))


class Factors:
    """Makes what rounding needs to know of every matrix's input, in a thread, ahead of its use.

    A context manager.
    """

    def __init__(
        self,
        calibration: Calibration | None,
        dampening: float,
        wanted: Iterable[Matrix],
        threads: int | None = None,
        *,
        output_side: bool = False,
    ) -> None:
        """Prepare to make them.

        calibration: what is known of inputs; None: nothing.
        dampening: what is added to the diagonal of Hessian statistics, in units of its mean.
        output_side: whether embeddings that are looked up alone are rounded by their output-side Hessian.
        """
        self._calibration, self._output_side = calibration, output_side
        self._dampening, self._threads = dampening, n_threads(threads)
        self._coming = [matrix for matrix in wanted if self._known(matrix)]
        self._made: OrderedDict[tuple[str, int, Together], Future[_core.Factor]] = OrderedDict()
        self._executor = ThreadPoolExecutor(1)

    def __enter__(self) -> Factors:
        return self

    def __exit__(self, *raised: object) -> None:
        self._executor.shutdown(cancel_futures=True)

    def of(self, matrix: Matrix, following: Matrix | None = None) -> _core.Factor:
        """Give what is known of a matrix's input.

        following: what is asked for next, where that was not foreseen.
        Raises ModelFileError: its Hessian statistics are singular in spite of the dampening.
        """
        if not self._known(matrix):
            return _core.independent(np.ones(matrix.tensor.n_per_row, np.float32))
        assert self._calibration is not None
        wanted = self._start(matrix)
        if matrix in self._coming:  # else an order that was not foreseen
            self._coming = self._coming[self._coming.index(matrix) + 1 :]
        ahead = self._coming[0] if self._coming else following
        if ahead and self._known(ahead):
            self._start(ahead)
        try:
            return wanted.result()
        except ValueError:
            raise ModelFileError(
                f"{self._calibration.called}: the Hessian of {matrix.tensor.name} is not positive "
                f"definite with a dampening of {self._dampening:g}; calibrate with more text"
            ) from None

    def _known(self, matrix: Matrix) -> bool:
        name, known = matrix.tensor.name, self._calibration
        if known is None:
            return False
        return self.looks_up(name) or (name in known.matrices and not known.is_dead(name))

    def looks_up(self, name: str) -> bool:
        """Say whether rows of a tensor are looked up, and their output-side Hessian stands for H."""
        return self._output_side and self._calibration is not None and self._calibration.looks_up(name)

    def _start(self, matrix: Matrix) -> Future[_core.Factor]:
        assert self._calibration is not None
        name = matrix.tensor.name
        of_input = name if self.looks_up(name) else self._calibration.input_of(name)
        key = of_input, matrix.expert, matrix.together
        if key not in self._made:
            self._made[key] = self._executor.submit(self._make, matrix)
        self._made.move_to_end(key)
        while len(self._made) > KEPT:
            self._made.popitem(last=False)
        return self._made[key]

    def _make(self, matrix: Matrix) -> _core.Factor:
        assert self._calibration is not None
        name, expert = matrix.tensor.name, matrix.expert
        needed = BYTES * matrix.tensor.n_per_row**2
        require_memory(needed, f"the Hessian statistics of {name}", blas=self._threads)
        hessian = first = None
        if self.looks_up(name):
            hessian = self._calibration.output_hessian(name)
        elif self._calibration.has_hessian(name):
            hessian = self._calibration.hessian(name, expert)
            first = self._calibration.first_token(name) if is_mixed(self._calibration, name) else None
        if hessian is None:  # an importance matrix, too few tokens, or an expert that none came to
            return _core.independent(self._diagonal(matrix))
        dampening = self._dampening
        if first is not None:
            without = hessian.trace()
            hessian = hessian + np.outer(first * np.float32(FIRST_TOKEN), first)
            dampening *= float(without / max(hessian.trace(), np.finfo(np.float32).tiny))
        return _core.factorize(
            hessian, dampening=dampening, together=matrix.together, n_threads=self._threads
        )

    def _diagonal(self, matrix: Matrix) -> NDArray[np.float32]:
        """(n_in,) float32: of its input; where no token came to the expert, the mean over the others."""
        assert self._calibration is not None
        name = matrix.tensor.name
        diagonals = self._calibration.diagonal(name).reshape(-1, matrix.tensor.n_per_row)
        counts = np.broadcast_to(self._calibration.counts(name), len(diagonals))
        if counts[matrix.expert] > 0 or not counts.any():
            return diagonals[matrix.expert]
        return np.average(diagonals, axis=0, weights=counts).astype(np.float32)
