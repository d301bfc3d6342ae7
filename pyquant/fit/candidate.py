"""Modes that are tried: a model quantized by one, and how far it is from the model then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyquant.evaluate.baseline import Baseline
from pyquant.files.text import AnyText
from pyquant.models.model_file import ModelFile
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes import Mode


@dataclass(frozen=True)
class Evaluation:
    """Text and chunks that KLDs are measured on.

    Attributes
    ----------
    text : Text or path, or several
    n_ctx : int
        Tokens of a chunk.
    n_chunks : int or None
        How many chunks of each text are used; None: all.
    """

    text: AnyText | Sequence[AnyText]
    n_ctx: int = 512
    n_chunks: int | None = None

    def baseline(self, model: ModelFile, *, threads: int | None = None) -> Baseline:
        """Run the model that KLDs are from, once for all candidates."""
        return Baseline(model, self.text, n_ctx=self.n_ctx, n_chunks=self.n_chunks, threads=threads)


def kld_of(mode: Mode, model: ModelFile, path: Path, baseline: Baseline, threads: int | None) -> float:
    """Measure how far what a mode makes of a model is from it.

    path: where the quantized model is written; replaced.
    Returns: the mean KLD per token, in nats.
    """
    quantize_model(model, path, mode, threads=threads, force=True)
    return baseline.kld_of(path).kld.mean
