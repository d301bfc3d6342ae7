"""What the KLD of files that are made is measured on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyquant.evaluate.baseline import Baseline
from pyquant.files.text import AnyText
from pyquant.models.model_file import ModelFile


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
