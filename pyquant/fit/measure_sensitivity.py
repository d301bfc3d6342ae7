"""Measure how much divergence errors in each kind of tensor cause."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import numpy as np

from pyquant.calibration.calibration import Calibration
from pyquant.calibration.sensitivity_file import Sensitivity
from pyquant.errors import ConfigError
from pyquant.files.temporary import temporary_folder
from pyquant.files.text import Text
from pyquant.fit.candidate import Evaluation, divergence_of
from pyquant.models.model_file import AnyModel, open_model
from pyquant.models.tensor_name import kind_of
from pyquant.schemes.settings import make_mode

LEAST_DIVERGENCE = 1e-9  # in nats: what no divergence counts as

# (kinds done, all kinds)
Progress = Callable[[int, int], None]


def measure_sensitivity(
    model: AnyModel,
    calibration: str | os.PathLike[str],
    text: Text | str | os.PathLike[str],
    *,
    step: float,
    n_ctx: int = 512,
    n_chunks: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Sensitivity:
    """Make one kind of tensor after the other uniform at `step`, and compare with the model.

    At one step every weight adds the same error to outputs, so the divergence that a kind causes,
    divided by its number of weights, is its sensitivity; their mean by weights in logarithms is 1.

    The folder for temporary files needs room for a copy of the model, and for the logits of all scored
    tokens where these take more than 64 MiB: `pyquant.evaluate.baseline` has how much that is.

    Parameters
    ----------
    model
        A path or a ModelFile, unquantized. It runs once.
    calibration
        What `calibrate_model` wrote for it.
    text
        The text, or the path of one.
    step
        Of the codes that are tried.
    n_ctx, n_chunks
        Tokens of a chunk, and how many chunks of the text are used; None: all.
    threads
        None: all processors.
    progress
        Called with kinds done and all kinds.

    Raises
    ------
    ConfigError
        The calibration knows the input of no matrix of the model.
    PyquantError
        What `quantize_model` and `Baseline` raise.
    """
    source, known = open_model(model), Calibration.read(calibration)
    n_weights: dict[str, int] = {}
    for tensor in source.tensors:
        if tensor.name in known.matrices and tensor.n_per_row % 32 == 0:
            kind = kind_of(tensor.name)
            n_weights[kind] = n_weights.get(kind, 0) + tensor.n_weights
    if not n_weights:
        raise ConfigError(
            f"{known.path}: knows the input of no matrix of {source.path}; calibrate this model"
        )
    by_kind: dict[str, float] = {}
    baseline = Evaluation(text, n_ctx, n_chunks).baseline(source, threads=threads)
    with baseline, temporary_folder() as folder:
        for kind in n_weights:
            settings = {"mode": "uniform", "calibration": known.path, "step": step}
            mode = make_mode({**settings, "tensors": rf"(^|\.){re.escape(kind)}\.weight$"})
            caused = divergence_of(mode, source, folder / "one-kind.gguf", baseline, threads)
            by_kind[kind] = max(caused, LEAST_DIVERGENCE) / n_weights[kind]
            if progress:
                progress(len(by_kind), len(n_weights))
    total = sum(n_weights.values())
    mean = np.exp(sum(n_weights[kind] * np.log(value) for kind, value in by_kind.items()) / total)
    return Sensitivity({kind: float(value / mean) for kind, value in by_kind.items()})
