"""The tokens that a calibration runs a model over: chunks of texts, and some at random behind them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from pyquant.calibration.collect import Work, list_work
from pyquant.calibration.random_tokens import random_chunks
from pyquant.calibration.sample import spread, thinned
from pyquant.llama.chunks import Chunks
from pyquant.llama.model import Model


@dataclass(frozen=True)
class RunTokens:
    """Chunks, and how much their tokens count.

    Attributes
    ----------
    chunks, weights
        Of each text; behind the texts perhaps of random tokens.
    n_texts
        How many of these are texts.
    """

    chunks: list[Chunks]
    weights: list[float]
    n_texts: int

    @property
    def of_texts(self) -> list[Chunks]:
        """Chunks of each text."""
        return self.chunks[: self.n_texts]

    @cached_property
    def work(self) -> list[Work]:
        """All batches, the texts' first."""
        return list_work(self.chunks, self.weights)

    @property
    def n_of_texts(self) -> int:
        """Count the batches of texts, which come first."""
        return len(list_work(self.of_texts, self.weights[: self.n_texts]))

    @property
    def ends(self) -> Iterator[int]:
        """Count the batches until each text's end."""
        return accumulate(chunks.n_groups for chunks in self.of_texts)

    def with_random(self, model: Model, share: float) -> RunTokens:
        """Draw tokens at random too: a share of all, by weight."""
        chunks, weight = random_chunks(model, self.chunks, self.weights, share)
        return RunTokens([*self.chunks, chunks], [*self.weights, weight], self.n_texts)

    def thinned(self, n: int) -> RunTokens:
        """Take about n chunks of the texts, each counting for several, and none at random."""
        return RunTokens(*thinned(self.of_texts, self.weights[: self.n_texts], n), self.n_texts)

    def spread(self, n: int) -> Chunks:
        """Take n chunks of the texts, at even distances over all."""
        return Chunks(spread(np.concatenate([chunks.tokens for chunks in self.of_texts]), n))
