"""Run models over a sample, beside their base.

Chunks that fit a batch: the base's logits of a span of chunks are kept, and one model after the other runs
over the span, one context alive at a time. Others: all models side by side (`run_abreast`), as many at once
as memory has room for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyquant.evaluate.baseline import BaseRun, Progress, in_chunks
from pyquant.evaluate.kept_logits import bytes_in_memory
from pyquant.evaluate.kld import Scores, check_loss
from pyquant.evaluate.memory import n_abreast
from pyquant.evaluate.passages import Passage, Runner, run_abreast
from pyquant.evaluate.samples import Sample
from pyquant.evaluate.variant import Variant
from pyquant.llama.chunks import BATCH, Chunks, together
from pyquant.llama.model import Model

NOISE_CHUNKS = 4  # a batch of 512 tokens each: enough to know the floor's order of magnitude
NOISE_UBATCH = 64  # other matrix kernels, another order of sums


@dataclass(frozen=True)
class ScoredSample:
    """What models say of a sample's n scored tokens.

    Attributes
    ----------
    scores : list of Scores
        Of each variant, the base first.
    noise : Scores
        Of the base beside itself, computed in other portions, and from a GPU on the CPU, over the first
        chunks.
    n_noise : int
        How many chunks these are.
    chunks, positions : (n,) int
        Which chunk each token is of, and where in it.
    """

    scores: list[Scores]
    noise: Scores
    n_noise: int
    chunks: NDArray[np.intp]
    positions: NDArray[np.intp]


def run_sample(
    variants: Sequence[Variant],
    sample: Sample,
    threads: int | None,
    *,
    again: Model | None = None,
    budget: int | None = None,
    progress: Progress | None = None,
) -> ScoredSample:
    """Run variants of models, the base first, over a sample.

    again: the base, where it is to run beside itself elsewhere. budget: bytes that they may take.

    Raises
    ------
    ModelFileError
        A model gives no finite numbers too.
    OutputError, ConfigError
    """
    passages = sample.passages(variants[0].model)
    n_noise = _n_noise(passages)
    if (chunks := sample.even) is not None:
        scores, noise = _run_kept(variants, again, chunks, n_noise, threads, progress)
    else:
        scores, noise = _run_abreast(variants, again, passages, n_noise, threads, budget, progress)
    of_chunks = np.repeat(np.arange(len(passages)), [passage.n_scored for passage in passages])
    positions = np.concatenate([passage.positions for passage in passages])
    return ScoredSample(scores, noise, n_noise, of_chunks, positions)


def _n_noise(passages: Sequence[Passage]) -> int:
    """Take chunks until there are as many tokens as four chunks of 512 have: four at most, one at least."""
    before = np.cumsum([0, *(len(passage.tokens) for passage in passages)])[:-1]
    return min(NOISE_CHUNKS, int((before < BATCH).sum()))


def _run_kept(
    variants: Sequence[Variant],
    again: Model | None,
    chunks: Chunks,
    n_noise: int,
    threads: int | None,
    progress: Progress | None,
) -> tuple[list[Scores], Scores]:
    """Score all variants, the base first, and the base beside itself over the first chunks."""
    base, n_scored = variants[0].model, chunks.n_scored
    scores = [Scores.empty(chunks.n_chunks * n_scored) for _ in variants]
    noise = Scores.empty(n_noise * n_scored)
    advance = in_chunks(progress, chunks.n_chunks, len(variants) * chunks.n_chunks * n_scored)
    for first, span in _spans(chunks, base.n_vocab):
        begin, end = first * n_scored, (first + span.n_chunks) * n_scored
        with BaseRun(base, span, threads, advance) as run:
            scores[0].part(begin, end).set(run.scores)
            if first < n_noise:
                own = run.score(
                    again or base, lambda _: None, n_chunks=n_noise - first, n_ubatch=NOISE_UBATCH
                )
                noise.part(begin, begin + len(own.nll)).set(own)
            for variant, its in zip(variants[1:], scores[1:]):
                its.part(begin, end).set(run.score(variant.model, advance, cache=variant.cache))
    for variant, own in zip([*variants, variants[0]], [*scores, noise]):
        own.check(variant.model.path, n_scored)
    return scores, noise


def _spans(chunks: Chunks, n_vocab: int) -> Iterator[tuple[int, Chunks]]:
    """Cut chunks into spans of whole batches whose logits fit into memory: each one's first chunk, and it."""
    n_batch = together(chunks.n_ctx)
    batch_bytes = 4 * n_vocab * chunks.n_scored * n_batch
    n = n_batch * max(1, bytes_in_memory(n_vocab, chunks.n_ctx) // batch_bytes)
    for first in range(0, chunks.n_chunks, n):
        yield first, Chunks(chunks.tokens[first : first + n])


def _run_abreast(
    variants: Sequence[Variant],
    again: Model | None,
    passages: Sequence[Passage],
    n_noise: int,
    threads: int | None,
    budget: int | None,
    progress: Progress | None,
) -> tuple[list[Scores], Scores]:
    """Score all variants, the base first; it runs again for each group of others that memory has room for."""
    base, others = variants[0].model, variants[1:]
    n_scored = sum(passage.n_scored for passage in passages)
    of_noise = sum(passage.n_scored for passage in passages[:n_noise])
    advance = in_chunks(progress, len(passages), len(others) * n_scored + of_noise)
    n_ctx = max(len(passage.tokens) for passage in passages)
    files, caches = [variant.model.file for variant in variants], [variant.cache for variant in variants]
    at_once = n_abreast(files, caches, n_ctx, budget)
    runners = [
        Runner(again or base, n_noise, NOISE_UBATCH),
        *(Runner(variant.model, len(passages), cache=variant.cache) for variant in others),
    ]
    scores: list[Scores] = []
    for first in range(0, len(runners), at_once):
        of_base, *own = run_abreast(base, runners[first : first + at_once], passages, threads, advance)
        scores += own
    noise, *of_others = scores
    for variant, its in zip(variants, [of_base, *of_others]):
        check_loss(variant.model.path, float(its.nll.mean()))
    return [of_base, *of_others], noise
