"""Fit tables to a model: the 16 values that its weights, in multiples of their scales, are nearest to."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.calibration import Calibration
from pyquant.errors import ConfigError
from pyquant.models.codebook import IQ4_NL_VALUES
from pyquant.models.model_file import AnyModel, open_model
from pyquant.models.tensor import UNQUANTIZED, Tensor
from pyquant.models.tensor_name import kind_of
from pyquant.models.tensor_reader import Progress, TensorReader
from pyquant.models.tensor_type import TensorType as Type
from pyquant.rounding.factors import matrices
from pyquant.rounding.types import choose_types
from pyquant.schemes.fold_table import N_CODES
from pyquant.schemes.q8_0 import Q8_0
from pyquant.schemes.table_set import TableSet

Per = Literal["model", "kind", "tensor"]

ROUNDS = 6  # after which tables hardly change
LEVELS = np.arange(-127, 128)


def learn_tables(
    model: AnyModel,
    *,
    per: Per = "model",
    hessian: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> TableSet:
    """Learn tables for mode `table`: one for all tensors, for each kind of tensor, or for each tensor.

    Alternately every block gets the scale that suits the table as it is, and the table becomes the best
    there is for weights at these scales (`best_values`). Every tensor counts by the number of its weights
    and by its relative error.

    Parameters
    ----------
    model
        A path or a ModelFile, unquantized.
    per
        What each table is for: the whole model, a kind of tensor, or a tensor.
    hessian
        What `calibrate_model` wrote for the model: errors are weighted by its Hessian statistics. None: all
        errors count the same.
    threads
        None: all cores.
    progress
        Called with bytes done, all bytes and the tensor's name.

    Raises
    ------
    ModelFileError
        The model cannot be read, or the calibration is of another one.
    ConfigError
        It has no tensor that a table could be learned for.
    """
    model = open_model(model)
    statistics = Calibration.read(hessian) if hessian else None
    if statistics:
        statistics.check_model(model, model.sha256())
    types = choose_types(model, Q8_0(mode="q8_0")).chosen
    tensors = [t for t in model.tensors if t.type in UNQUANTIZED and types[t.name] == Type.Q8_0]
    if not tensors:
        raise ConfigError(f"{model.path}: has no tensors that a table could be learned for")
    group = {"model": lambda name: "", "kind": kind_of, "tensor": lambda name: name}[per]
    values: dict[str, NDArray[np.int8]] = defaultdict(lambda: IQ4_NL_VALUES)
    with TensorReader(model, tensors * ROUNDS, threads, progress) as reader:
        for _ in range(ROUNDS):
            sums: dict[str, NDArray[np.float64]] = defaultdict(lambda: np.zeros(_core.BINS_PER_LEVEL * 256))
            everything = np.zeros(_core.BINS_PER_LEVEL * 256)
            for tensor in tensors:
                positions = _positions(reader, tensor, statistics, values[group(tensor.name)])
                sums[group(tensor.name)] += positions
                everything += positions
            values.update({name: best_values(found) for name, found in sums.items() if found.any()})
    name = f"learned per {per}"
    if per == "model":
        return TableSet(name, values[""])
    of_others = best_values(everything) if everything.any() else IQ4_NL_VALUES
    return TableSet(name, of_others, dict(values))


def _positions(
    reader: TensorReader, tensor: Tensor, statistics: Calibration | None, values: NDArray[np.int8]
) -> NDArray[np.float64]:
    diagonals = None
    if statistics is not None and tensor.name in statistics.matrices:
        diagonals = statistics.diagonal(tensor.name).reshape(-1, tensor.n_per_row)
        diagonals = diagonals * statistics.loads(tensor)[:, None].astype(np.float32)
    ones = np.ones(tensor.n_per_row, np.float32)
    total = np.zeros(_core.BINS_PER_LEVEL * 256)
    for matrix in matrices(tensor, _core.columns_together(int(Type.Q8_0))):
        weights = ones if diagonals is None else diagonals[matrix.expert]
        total += reader.positions(matrix.tensor, weights, values)
    # Energy of the weights, so that errors count relative to it; none where they or their inputs are zeros.
    energy = float((total * _middles(len(total)) ** 2).sum())
    return total * (tensor.n_weights / energy) if energy else total


def _middles(n_bins: int) -> NDArray[np.float64]:
    return (np.arange(n_bins, dtype=np.float64) + 0.5) * (256 / n_bins) - 128


def best_values(positions: NDArray[np.float64]) -> NDArray[np.int8]:
    """Find the 16 integers in -127..127 of least squared distance to where the weights are.

    None are better: this is dynamic programming over the greatest value so far, as one-dimensional
    clusters are intervals (Wang and Song, Ckmeans.1d.dp, 2011; here centers are integers, and bounds lie
    halfway between them).

    positions: (n_bins,) float64: the weight in each bin, from -128 to 128.
    Returns (16,) int8.
    """
    n_bins = len(positions)
    middles = _middles(n_bins)
    sums = [np.concatenate([[0.0], np.cumsum(positions * middles**power)]) for power in range(3)]

    def cost(
        begin: NDArray[np.int64], end: NDArray[np.int64], value: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Sum up squared distances of bins begin..end-1 from a value."""
        s0, s1, s2 = (s[end] - s[begin] for s in sums)
        return s2 - 2 * value * s1 + value**2 * s0

    bins = (LEVELS + 128) * (n_bins // 256)  # the bin that begins at a level
    low, high = np.meshgrid(LEVELS, LEVELS, indexing="ij")
    low_bin, high_bin = np.meshgrid(bins, bins, indexing="ij")
    middle = (low_bin + high_bin) // 2
    between = cost(low_bin, middle, low) + cost(middle, high_bin, high)
    between[low >= high] = np.inf
    best = cost(np.zeros_like(bins), bins, LEVELS)
    chosen = []
    for _ in range(N_CODES - 1):
        total = best[:, None] + between
        chosen.append(total.argmin(axis=0))
        best = total.min(axis=0)
    last = int((best + cost(bins, np.full_like(bins, n_bins), LEVELS)).argmin())
    picks = [last]
    for before in reversed(chosen):
        picks.append(int(before[picks[-1]]))
    return LEVELS[picks[::-1]].astype(np.int8)
