"""Measuring how much divergence errors in each kind of tensor cause."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pyquant.calibration.calibration import Calibration
from pyquant.calibration.sensitivity_file import Sensitivity
from pyquant.errors import ConfigError
from pyquant.files.temporary import temporary_folder
from pyquant.files.text import Text, read_text
from pyquant.fit.candidate import Evaluation, divergence_of
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_name import kind_of
from pyquant.schemes.settings import make_mode

# (kinds done, all kinds)
Progress = Callable[[int, int], None]


def measure_sensitivity(
    model: str | os.PathLike[str],
    calibration: str | os.PathLike[str],
    text: str | os.PathLike[str] | Text,
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
    text = read_text(text)
    source, known = ModelFile(model), Calibration.read(calibration)
    n_weights: dict[str, int] = {}
    for tensor in source.tensors:
        if tensor.name in known.matrices and tensor.n_per_row % 32 == 0:
            n_weights[kind_of(tensor.name)] = n_weights.get(kind_of(tensor.name), 0) + tensor.n_weights
    if not n_weights:
        raise ConfigError(f"{calibration}: knows the input of no matrix of {model}; calibrate this model")
    found = {}
    with temporary_folder() as folder:
        for kind in n_weights:
            settings = {"mode": "uniform", "calibration": calibration, "step": step}
            mode = make_mode({**settings, "tensors": rf"(^|\.){re.escape(kind)}\.weight$"})
            evaluation = Evaluation(text, n_ctx, n_chunks)
            caused = divergence_of(mode, Path(model), folder / "one-kind.gguf", evaluation, threads)
            found[kind] = max(caused, 1e-9) / n_weights[kind]
            if progress:
                progress(len(found), len(n_weights))
    total = sum(n_weights.values())
    mean = np.exp(sum(n_weights[kind] * np.log(value) for kind, value in found.items()) / total)
    return Sensitivity({kind: float(value / mean) for kind, value in found.items()})
