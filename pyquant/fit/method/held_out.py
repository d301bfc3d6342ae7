"""KLD of files on chunks that were held out: what stages are chosen by."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyquant.evaluate.baseline import BaseRun
from pyquant.evaluate.kld import mean_and_error
from pyquant.llama.chunks import Chunks
from pyquant.llama.model import Model
from pyquant.models.model_file import AnyModel


@dataclass(frozen=True)
class Kld:
    """Mean KLD per token in nats, and its standard error over chunks; None of a single chunk."""

    mean: float
    error: float | None


class HeldOut:
    """A model's predictions on held-out chunks, to compare files with; a context manager.

    The base runs once, and its logits are kept until the context is left. Errors are those of `BaseRun`.
    """

    def __init__(self, base: AnyModel, chunks: Chunks, threads: int | None) -> None:
        self._chunks = chunks
        with Model(base) as model:
            self._run = BaseRun(model, chunks, threads, lambda n_tokens: None)

    def kld(self, path: Path) -> Kld:
        """Measure a file."""
        with Model(path) as candidate:
            scores = self._run.score(candidate, lambda n_tokens: None)
        scores.check(candidate.path, self._chunks.n_scored)
        by_chunk = scores.kld_by_chunk(self._chunks.n_scored)
        mean, error = mean_and_error(by_chunk)
        return Kld(mean, error if len(by_chunk) > 1 else None)

    def __enter__(self) -> HeldOut:
        return self

    def __exit__(self, *raised: object) -> None:
        self._run.__exit__(*raised)
