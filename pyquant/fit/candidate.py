"""Modes that are tried: a model quantized by one, and how far it is from the model then."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyquant.evaluate.compare import compare_models
from pyquant.files.text import Text
from pyquant.quantize.quantize_model import quantize_model
from pyquant.schemes import Mode


@dataclass(frozen=True)
class Evaluation:
    """What a divergence is measured on. text: a file, or one that has been read."""

    text: Path | Text
    n_ctx: int
    n_chunks: int | None


def divergence_of(mode: Mode, model: Path, path: Path, evaluation: Evaluation, threads: int | None) -> float:
    """The mean divergence per token, in nats, from `model` of what `mode` makes of it, at `path`.

    Raises what `quantize_model` and `compare_models` raise.
    """
    quantize_model(model, path, mode, threads=threads, force=True)
    apart = compare_models(
        model, [path], evaluation.text, n_ctx=evaluation.n_ctx, n_chunks=evaluation.n_chunks,
        threads=threads,
    )  # fmt: skip
    return apart.candidates[0].kld.mean
