"""Measuring how much divergence errors in each kind of tensor cause."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pyquant.calibration.stats_file import Calibration
from pyquant.compare import compare_models
from pyquant.model_file import ModelFile
from pyquant.quantize import quantize_model
from pyquant.schemes.uniform import Uniform
from pyquant.sensitivity_file import Sensitivity
from pyquant.table_set import kind_of

# (kinds done, all kinds)
Progress = Callable[[int, int], None]


def measure_sensitivity(
    model: str | os.PathLike[str],
    calibration: str | os.PathLike[str],
    text: str | os.PathLike[str],
    *,
    step: float,
    n_ctx: int = 512,
    n_chunks: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Sensitivity:
    """Makes one kind of tensor after the other uniform at `step`, and compares with the model.

    At one step every weight adds the same error to outputs, so the divergence that a kind causes,
    divided by its number of weights, is its sensitivity; their mean by weights in logarithms is 1. Needs
    room for a copy of the model in the folder for temporary files. Raises what `quantize_model` and
    `compare_models` raise.
    """
    source, known = ModelFile(model), Calibration.read(calibration)
    n_weights: dict[str, int] = {}
    for tensor in source.tensors:
        if tensor.name in known.matrices:
            n_weights[kind_of(tensor.name)] = n_weights.get(kind_of(tensor.name), 0) + tensor.n_weights
    found = {}
    with tempfile.TemporaryDirectory(prefix="pyquant-") as folder:
        for kind in n_weights:
            mode = Uniform(
                mode="uniform", calibration=calibration, step=step, threads=threads,
                tensors=rf"(^|\.){kind}\.weight$",
            )  # fmt: skip
            candidate = Path(folder) / "one-kind.gguf"
            quantize_model(model, candidate, mode, force=True)
            apart = compare_models(model, [candidate], text, n_ctx=n_ctx, n_chunks=n_chunks, threads=threads)
            (result,) = apart.to_json()["candidates"]
            found[kind] = max(result["kld"]["mean"], 1e-9) / n_weights[kind]
            if progress:
                progress(len(found), len(n_weights))
    total = sum(n_weights.values())
    mean = np.exp(sum(n_weights[kind] * np.log(value) for kind, value in found.items()) / total)
    return Sensitivity({kind: float(value / mean) for kind, value in found.items()})
