"""Token sequences of any length, of which any tokens are scored, and how models run over them side by side.

All models have a context at once and are given the same tokens in turn, some hundreds at a time; what one
says is compared with what the base says, and forgotten. So memory holds the logits of one batch of each
model, however long a sequence is, and nothing goes to a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.evaluate.baseline import Advance
from pyquant.evaluate.kld import Scores, not_finite
from pyquant.llama.cache_types import F16_CACHE, CacheTypes
from pyquant.llama.chunks import UBATCH
from pyquant.llama.context import Context
from pyquant.llama.model import Model


@dataclass(frozen=True)
class Passage:
    """What a model is given as one sequence.

    Attributes
    ----------
    tokens : (n,) int32
        With the one that begins texts, if the model wants it.
    scored : (n,) bool
        Which of them are scored; not the first, before which there is nothing.
    """

    tokens: NDArray[np.int32]
    scored: NDArray[np.bool_]

    @property
    def n_scored(self) -> int:
        """Number of tokens that are scored."""
        return int(self.scored.sum())

    @property
    def positions(self) -> NDArray[np.int64]:
        """Positions of the tokens that are scored, (n_scored,)."""
        return np.flatnonzero(self.scored)


@dataclass(frozen=True)
class Runner:
    """A model beside the base.

    n_passages: over how many of the passages it runs, from the first on.
    n_ubatch: tokens that it computes together.
    cache: types of its cache.
    """

    model: Model
    n_passages: int
    n_ubatch: int = UBATCH
    cache: CacheTypes = F16_CACHE


def run_abreast(
    base: Model,
    others: Sequence[Runner],
    passages: Sequence[Passage],
    threads: int | None,
    advance: Advance,
) -> list[Scores]:
    """Score a base, and others beside it. Returns the scores of each, the base first. Raises ModelFileError.

    advance: called with the scored tokens of each model, the base not counted.
    """
    ends = np.cumsum([0, *(passage.n_scored for passage in passages)])
    scores = [Scores.empty(int(ends[runner.n_passages])) for runner in others]
    of_base = Scores.of_base(int(ends[-1]))
    n_ctx = max(len(passage.tokens) for passage in passages)
    with ExitStack() as stack:

        def context(runner: Runner) -> Context:
            made = runner.model.context(
                n_ctx=n_ctx, n_batch=UBATCH, n_ubatch=runner.n_ubatch, threads=threads, cache=runner.cache
            )
            return stack.enter_context(made)

        first = context(Runner(base, len(passages)))
        contexts = [context(runner) for runner in others]
        for i, passage in enumerate(passages):
            own_and_scores = [
                (own, its) for own, its, runner in zip(contexts, scores, others) if i < runner.n_passages
            ]
            begin = int(ends[i])
            for targets, logits, *rest in zip(
                _targets(passage),
                _logits(first, passage),
                *(_logits(own, passage) for own, _ in own_and_scores),
            ):
                end = begin + len(targets)
                nll = _core.negative_log_likelihood(logits, targets, first.n_threads)
                of_base.nll[begin:end] = _finite(nll, base, i)
                for (own, its), said in zip(own_and_scores, rest):
                    compared = Scores(*_core.compare_logits(logits, said, targets, first.n_threads))
                    _finite(compared.nll + compared.kld, own.model, i)
                    its.part(begin, end).set(compared)
                    advance(len(targets))
                begin = end
    return [of_base, *scores]


def _finite(losses: NDArray[np.float64], model: Model, chunk: int) -> NDArray[np.float64]:
    if not np.isfinite(losses).all():
        raise not_finite(model.path, chunk)
    return losses


def _batches(passage: Passage) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    """Yield where each batch begins, and after which of its tokens one is scored."""
    after = passage.scored[1 : int(passage.positions[-1]) + 1]  # behind the last one nothing is computed
    for begin in range(0, len(after), UBATCH):
        yield begin, after[begin : begin + UBATCH]


def _targets(passage: Passage) -> Iterator[NDArray[np.int32]]:
    """Yield the scored tokens of each batch that has some."""
    for begin, wanted in _batches(passage):
        if wanted.any():
            yield passage.tokens[begin + 1 : begin + 1 + len(wanted)][wanted]


def _logits(context: Context, passage: Passage) -> Iterator[NDArray[np.float32]]:
    """Yield the logits before the scored tokens of each batch, valid until the next ones are asked for."""
    context.clear()
    for begin, wanted in _batches(passage):
        logits = context.decode(passage.tokens[None, begin : begin + len(wanted)], begin, wanted)[0]
        if wanted.any():
            yield logits
