"""Collect by how much rows and columns of a model's tensors are scaled, and scale them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pyquant.models.tensor import Tensor
from pyquant.rounding.equalize.links import Giver, Link


@dataclass
class Rescaling:
    """Exponents of two by which rows and columns of tensors are scaled."""

    # by the tensor's name: (n_experts, n_rows) int8
    rows: dict[str, NDArray[np.int8]] = field(default_factory=dict)
    # By the tensor's name: (n_experts or 1, n_columns) int8. A vector is a row.
    columns: dict[str, NDArray[np.int8]] = field(default_factory=dict)

    def add(self, link: Link, exponents: NDArray[np.int8]) -> None:
        """Scale the columns that a link's channels enter, and undo it in what gives them.

        exponents: (n_experts, n_channels) int8, of the columns.
        """
        if not exponents.any():
            return
        for tensor in link.entered:
            self._add(self.columns, tensor.name, link.to_columns(exponents))
        for giver in link.givers:
            is_vector = len(giver.tensor.shape) == 1
            self._add(self.columns if is_vector else self.rows, giver.tensor.name, _placed(giver, -exponents))

    @staticmethod
    def _add(to: dict[str, NDArray[np.int8]], name: str, exponents: NDArray[np.int8]) -> None:
        to[name] = to[name] + exponents if name in to else exponents

    def changes(self, name: str) -> bool:
        """Say whether a tensor changes, by its name."""
        return name in self.rows or name in self.columns

    def of_inputs(self, names: Iterable[str]) -> dict[str, NDArray[np.int8]]:
        """Give exponents of what enters matrices, by their names: opposite to those of their columns."""
        return {name: -self.columns[name] for name in names if name in self.columns}

    def scaled(self, tensor: Tensor) -> NDArray[np.float32]:
        """Give a tensor's weights, scaled: (n_rows, n_per_row) float32."""
        weights = tensor.weights()
        experts = weights.reshape(tensor.n_experts, -1, tensor.n_per_row)
        for exponents, axis in ((self.rows.get(tensor.name), 2), (self.columns.get(tensor.name), 1)):
            if exponents is not None:
                np.ldexp(experts, np.expand_dims(exponents, axis), out=experts)
        return weights


def _placed(giver: Giver, exponents: NDArray[np.int8]) -> NDArray[np.int8]:
    """Put a link's exponents where its channels are among all rows, or entries, of what gives them."""
    tensor = giver.tensor
    n = tensor.shape[0] if len(tensor.shape) == 1 else tensor.shape[1]
    placed = np.zeros((len(exponents), n), np.int8)
    placed[:, giver.begin : giver.begin + exponents.shape[1]] = exponents
    return placed
