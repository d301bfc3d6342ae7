"""Round the tensors of a plan, and write each where it belongs in the new file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.files.output_files import OutputFiles
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_reader import TensorReader
from pyquant.rounding.factors import Factors
from pyquant.rounding.output_side import RowFeedback, RowsPassed, rows_passed
from pyquant.rounding.plan import Plan

Passed: TypeAlias = _core.PassResult | RowsPassed
Values = NDArray[np.float32]
Copy = NDArray[np.uint8]


@dataclass(frozen=True)
class TensorWriter:
    """Writes tensors as a plan has them."""

    plan: Plan  # the quantization, and what it knows of inputs
    factors: Factors
    reader: TensorReader  # the model
    files: OutputFiles
    threads: int | None

    def write(self, tensor: Tensor, weights: Values | None = None, copy: Copy | None = None) -> list[Passed]:
        """Round a tensor and write it.

        weights: (n_rows, n_per_row) float32: rounded instead of its own.
        copy: (n_rows, row_bytes) uint8: gets the values that were written, in the tensor's own type.
        Returns: what each pass over its parts measured.
        """
        feedback = self.plan.output_side(tensor)
        if feedback is not None:
            return [self._by_rows(tensor, feedback, tensor.weights() if weights is None else weights, copy)]
        return self._in_passes(tensor, weights, copy)

    def take_up(self, tensor: Tensor, copy: Copy | None = None) -> None:
        """Take a tensor that is written already; `copy` gets its values, as from `write`."""
        self.reader.skip(tensor)
        if copy is not None:
            number, offset = self.plan.place(tensor)
            stored = replace(
                tensor, path=self.files[number].partial, offset=offset,
                type=self.plan.types[tensor.name], n_bytes=self.plan.n_bytes(tensor), pqz=None, table=None,
            )  # fmt: skip
            copy[:] = _core.ggml_encoder(int(tensor.type)).encode(stored.weights())

    def _in_passes(self, tensor: Tensor, weights: Values | None, copy: Copy | None) -> list[Passed]:
        passes: list[Passed] = []
        (number, offset), row = self.plan.place(tensor), 0
        for part in self.plan.parts(tensor, self.factors):
            work: dict[str, Any] = {"check": True} if part.target is None else {"measure": True}
            rows = slice(row, row + part.tensor.n_rows)
            if copy is not None:
                work |= {"copy": copy[rows], "copy_as": _core.ggml_encoder(int(tensor.type))}
            passes.append(
                self.reader.run(
                    part.tensor, weights=None if weights is None else weights[rows],
                    out_file=self.files[number].fileno(), out_offset=offset, target=part.target,
                    importance=part.importance, **work,
                )
            )  # fmt: skip
            offset, row = offset + part.n_bytes, rows.stop
        return passes

    def _by_rows(self, tensor: Tensor, feedback: RowFeedback, weights: Values, copy: Copy | None) -> Passed:
        (part,) = self.plan.parts(tensor, self.factors)
        assert part.target is not None
        self.reader.check(tensor, weights)
        stored, values = feedback.round(weights, part.target, threads=self.threads)
        number, offset = self.plan.place(tensor)
        self.files[number].write(stored.data.cast("B"), offset)
        if copy is not None:
            copy[:] = _core.ggml_encoder(int(tensor.type)).encode(values)
        return rows_passed(weights, values)
