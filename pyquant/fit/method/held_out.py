"""KLD of files on chunks that were held out: what stages are chosen by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pyquant.evaluate.baseline import BaseRun, in_chunks
from pyquant.evaluate.kld import mean_and_error
from pyquant.llama.chunks import Chunks
from pyquant.llama.model import Model
from pyquant.models.model_file import AnyModel

HELD_OUT = "held-out KLD"  # what progress calls a run over these chunks


@dataclass(frozen=True)
class HeldOutKld:
    """Mean KLD per token of each chunk, in nats."""

    by_chunk: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over all chunks, which have as many tokens each."""
        return float(np.mean(self.by_chunk))

    @property
    def error(self) -> float | None:
        """Return the standard error of the mean over chunks; None of a single chunk."""
        return mean_and_error(np.array(self.by_chunk))[1] if len(self.by_chunk) > 1 else None

    def is_worse(self, other: HeldOutKld) -> bool:
        """Say whether the mean is above another's by more than a standard error of their difference.

        Chunks differ far more from each other than files do on a chunk: the difference is taken by chunk.
        """
        above, error = mean_and_error(np.subtract(self.by_chunk, other.by_chunk))
        return above > error

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"mean": self.mean, "error": self.error, "by_chunk": list(self.by_chunk)}


class HeldOut:
    """A model's predictions on held-out chunks, to compare files with; a context manager.

    The base runs once, and its logits are kept until the context is left. `progress` is called with HELD_OUT,
    and the chunks that are done and all. Errors are those of `BaseRun`.
    """

    def __init__(
        self,
        base: AnyModel,
        chunks: Chunks,
        threads: int | None,
        progress: Callable[[str, int, int], None] = lambda what, done, total: None,
    ) -> None:
        self._chunks, self._progress = chunks, partial(progress, HELD_OUT)
        with Model(base) as model:
            self._run = BaseRun(model, chunks, threads, self._advance())

    def kld(self, path: Path) -> HeldOutKld:
        """Measure a file."""
        with Model(path) as candidate:
            scores = self._run.score(candidate, self._advance())
        scores.check(candidate.path, self._chunks.n_scored)
        return HeldOutKld(tuple(scores.kld_by_chunk(self._chunks.n_scored).tolist()))

    def _advance(self) -> Callable[[int], None]:
        n_chunks = self._chunks.n_chunks
        self._progress(0, n_chunks)
        return in_chunks(self._progress, n_chunks, n_chunks * self._chunks.n_scored)

    def __enter__(self) -> HeldOut:
        return self

    def __exit__(self, *raised: object) -> None:
        self._run.__exit__(*raised)
