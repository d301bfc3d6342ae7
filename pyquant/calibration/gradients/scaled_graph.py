"""The graph of a model whose rows and norms are multiplied by factors, and gradients of these."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyquant.calibration.gradients.llama_graph import Array, LlamaGraph
from pyquant.calibration.products import Matrix
from pyquant.models.model_file import ModelFile


@dataclass(frozen=True)
class _Scaled:
    """A matrix, (n_out, n_in), and a factor of each row."""

    matrix: Matrix
    factors: Array


class ScaledGraph(LlamaGraph):
    """A model, and factors of some of its tensors.

    Attributes
    ----------
    logs
        By tensor: logarithms of the factors, (n_out,) float32. They may be changed.
    """

    def __init__(self, model: ModelFile, scaled: Collection[str], *, threads: int | None = None) -> None:
        """Begin with factors of 1.

        scaled: names of matrices of layers, whose rows have factors, and of norms.
        Raises ConfigError: see `LlamaGraph`.
        """
        super().__init__(model, threads=threads)
        self.logs = {
            name: np.zeros(tensor.n_rows if len(tensor.shape) > 1 else tensor.n_weights, np.float32)
            for name, tensor in self._tensors.items()
            if name in scaled
        }

    def slopes(self, streams: list[Array], logits: Array) -> dict[str, Array]:
        """Give the gradients of what `logits` are gradients of by all `logs`: as `backwards` goes back."""
        slopes: dict[str, Array] = {}

        def take(name: str, gradients: Array, given: Callable[[], Array] | None) -> None:
            if name in self.logs and given is not None:
                rows = (x.reshape(-1, len(self.logs[name])) for x in (gradients, given()))
                slopes[name] = np.einsum("ij,ij->j", *rows)

        self.backwards(streams, logits, take)
        return slopes

    def _vector(self, name: str) -> Array:
        weights = super()._vector(name)
        return weights * np.exp(self.logs[name]) if name in self.logs else weights

    def _matrices(self, layer: int) -> dict[str, Any]:
        matrices = super()._matrices(layer)
        for kind, matrix in matrices.items():
            if (logs := self.logs.get(f"blk.{layer}.{kind}.weight")) is not None:
                matrices[kind] = _Scaled(matrix, np.exp(logs))
        return matrices

    def _times(self, matrix: Any, x: Array) -> Array:
        if isinstance(matrix, _Scaled):
            return super()._times(matrix.matrix, x) * matrix.factors
        return super()._times(matrix, x)

    def _times_back(self, matrix: Any, gradients: Array) -> Array:
        if isinstance(matrix, _Scaled):
            return super()._times_back(matrix.matrix, gradients * matrix.factors)
        return super()._times_back(matrix, gradients)
