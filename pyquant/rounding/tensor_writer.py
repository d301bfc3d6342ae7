"""Round the tensors of a plan, and write each where it belongs in the new file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.files.output_files import OutputFiles
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_reader import TensorReader, weight_errors
from pyquant.rounding.factors import Factors
from pyquant.rounding.output_side import RowsPassed, round_rows, rows_passed
from pyquant.rounding.plan import Plan

Passed: TypeAlias = _core.PassResult | RowsPassed
Values = NDArray[np.float32]
Copy = NDArray[np.uint8]


@dataclass(frozen=True)
class ToWrite:
    """A tensor to write."""

    tensor: Tensor
    weights: Values | None = None  # (n_rows, n_per_row) float32: rounded instead of its own
    # (n_rows, row_bytes) uint8: gets the values that were written, in the tensor's own type
    copy: Copy | None = None


@dataclass(frozen=True)
class TensorWriter:
    """Writes tensors as a plan has them."""

    plan: Plan  # the quantization, and what it knows of inputs
    factors: Factors
    reader: TensorReader  # the model
    files: OutputFiles
    threads: int | None

    def write(self, wanted: Sequence[ToWrite]) -> list[list[Passed]]:
        """Round tensors and write them.

        An expert's parts of all tensors are rounded one after the other, as they share a factor.
        Returns: what the passes over the parts of each tensor measured.
        """
        passes: list[list[Passed]] = [[] for _ in wanted]
        for of_expert in zip_longest(*map(self._passes, wanted)):
            for measured, passed in zip(passes, of_expert):
                if passed is not None:
                    measured.append(passed)
        return passes

    def take_up(self, written: ToWrite) -> None:
        """Take a tensor that is written already; its copy gets the values, as from `write`."""
        tensor, copy = written.tensor, written.copy
        self.reader.skip(tensor)
        if copy is not None:
            number, offset = self.plan.place(tensor)
            stored = replace(
                tensor, path=self.files[number].partial, offset=offset,
                type=self.plan.types[tensor.name], n_bytes=self.plan.n_bytes(tensor), pqz=None, table=None,
            )  # fmt: skip
            copy[:] = _core.ggml_encoder(int(tensor.type)).encode(stored.weights())

    def _passes(self, wanted: ToWrite) -> Iterator[Passed]:
        tensor, weights, copy = wanted.tensor, wanted.weights, wanted.copy
        absorbing = self.plan.row_factor(tensor, self.threads)
        if absorbing is not None:
            yield self._by_rows(tensor, absorbing, tensor.weights() if weights is None else weights, copy)
            return
        (number, offset), row = self.plan.place(tensor), 0
        for part in self.plan.parts(tensor, self.factors):
            work: dict[str, Any] = {"check": True} if part.target is None else {"measure": True}
            rows = slice(row, row + part.tensor.n_rows)
            if copy is not None:
                work |= {"copy": copy[rows], "copy_as": _core.ggml_encoder(int(tensor.type))}
            yield self.reader.run(
                part.tensor, weights=None if weights is None else weights[rows],
                out_file=self.files[number].fileno(), out_offset=offset, target=part.target,
                importance=part.importance, **work,
            )  # fmt: skip
            offset, row = offset + part.n_bytes, rows.stop

    def _by_rows(self, tensor: Tensor, rows: _core.Factor, weights: Values, copy: Copy | None) -> Passed:
        (part,) = self.plan.parts(tensor, self.factors)
        assert part.target is not None
        self.reader.check(tensor, weights)
        with weight_errors(self.plan.model, tensor):
            stored, values = round_rows(weights, rows, part.target, threads=self.threads)
        number, offset = self.plan.place(tensor)
        self.files[number].write(stored.data.cast("B"), offset)
        if copy is not None:
            copy[:] = _core.ggml_encoder(int(tensor.type)).encode(values)
        return rows_passed(weights, values)
