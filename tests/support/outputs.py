"""Measure what a quantized file's matrices do to what comes out of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

from pyquant.calibration.calibration import Calibration


def weights(path: Path) -> dict[str, np.ndarray]:
    """(n_experts, n_rows, n_per_row) of each matrix."""
    found = {}
    for tensor in GGUFReader(path).tensors:
        if len(tensor.shape) > 1:
            x = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            found[tensor.name] = x.reshape(-1, int(tensor.shape[1]), int(tensor.shape[0]))
    return found


def output_error(stats: Calibration, x: dict[str, np.ndarray], y: dict[str, np.ndarray]) -> float:
    """The mean squared error of what comes out of the matrices, together."""
    total = 0.0
    for name in set(x) & set(stats.matrices):
        for expert, e in enumerate((x[name] - y[name]).astype(np.float64)):
            h = stats.hessian(name, expert)
            total += 0 if h is None else ((e @ h) * e).sum()
    return total
