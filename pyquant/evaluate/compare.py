"""Measure how far models are from a base, token by token: llama-perplexity's KLD, without a file.

The base and every model run over a span of chunks in turn, one context alive at a time: first the base,
whose logits of the span are kept, then each model beside them. A span has as many batches as have no more
than 64 MiB of logits, at least one. For the percentiles 25 bytes of each scored token and model are kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from pyquant.errors import ConfigError
from pyquant.evaluate.baseline import BaseRun, Progress, check_vocabulary, in_chunks
from pyquant.evaluate.kept_logits import bytes_in_memory
from pyquant.evaluate.kld import (
    ERRORS,
    Kld,
    Scores,
    error_of_difference,
    kld,
    token_kld,
)
from pyquant.evaluate.memory import check_budget
from pyquant.files.text import Text, read_text
from pyquant.llama.cache_types import F16_CACHE, CacheTypes
from pyquant.llama.chunks import Chunks, cut, together
from pyquant.llama.model import Model, path_of
from pyquant.models.model_file import AnyModel, open_model

SCHEMA = "pyquant.compare/1"
NOISE_CHUNKS = 4  # a batch of 512 tokens each: enough to know the floor's order of magnitude
NOISE_UBATCH = 64  # other matrix kernels, another order of sums


@dataclass(frozen=True)
class BasePerplexity:
    """The base's perplexity on the text; perplexity_error: one standard error."""

    model: str
    perplexity: float
    perplexity_error: float


@dataclass(frozen=True)
class NoiseFloor:
    """Distance of the base from itself where it is computed in other portions, on n_chunks chunks.

    kld, kld_max: mean and largest KLD per token, in nats. same_top: share of tokens.
    """

    n_chunks: int
    kld: float
    kld_max: float
    same_top: float


@dataclass(frozen=True)
class Comparison:
    """Models beside a base, by the definitions of `llama-perplexity --kl-divergence`.

    Attributes
    ----------
    text, text_sha256 : str
        The text's path, and the hash of it less a newline at its end.
    n_ctx, n_chunks, n_tokens : int
        Tokens of a chunk, chunks, and scored tokens of all of them.
    base : BasePerplexity
    noise_floor : NoiseFloor
    candidates : list of KLD
        In the order in which they were given; then, for each cache's types, the base and all of them.
    caches : list of CacheTypes
        Of each model that was run, the base first.
    sizes : list of int
        Bytes of each model's files, the base first.
    bits : list of float
        The same per weight, times 8.
    scores : list of Scores
        What each model said of every scored token, the base first. Not in the JSON.
    """

    text: str
    text_sha256: str
    n_ctx: int
    n_chunks: int
    n_tokens: int
    base: BasePerplexity
    noise_floor: NoiseFloor
    candidates: list[Kld]
    caches: list[CacheTypes]
    sizes: list[int]
    bits: list[float]
    scores: list[Scores] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return all statistics as `pyquant compare --json` prints them."""
        return {
            "schema": SCHEMA,
            "text": self.text,
            "text_sha256": self.text_sha256,
            "n_ctx": self.n_ctx,
            "n_chunks": self.n_chunks,
            "n_tokens": self.n_tokens,
            "base": asdict(self.base) | {"bits": self.bits[0]},
            "noise_floor": asdict(self.noise_floor),
            "candidates": [
                candidate.to_json()
                | {
                    "file": candidate.model.removesuffix(f" ({cache})"),
                    "cache_type_k": cache.keys,
                    "cache_type_v": cache.values,
                    "bits": bits,
                    "dominated_by": peer,
                }
                for candidate, cache, bits, peer in zip(
                    self.candidates, self.caches[1:], self.bits[1:], self.dominated_by()
                )
            ],
        }

    def dominated_by(self) -> list[str | None]:
        """Name for each candidate the nearest one to the base that is smaller and yet nearer than it.

        Both have caches of the same types.

        Nearer is a mean KLD that is lower by more than ERRORS standard errors of the difference of
        both, token by token. None: there is no such candidate.
        """
        kld = [scores.kld for scores in self.scores[1:]]
        sizes, caches = self.sizes[1:], self.caches[1:]
        peers: list[str | None] = []
        for ours, size, cache in zip(kld, sizes, caches):
            better = [
                (theirs.mean(), peer.model)
                for theirs, peer, peer_size, peer_cache in zip(kld, self.candidates, sizes, caches)
                if peer_size < size
                and peer_cache == cache
                and ours.mean() - theirs.mean() > ERRORS * error_of_difference(ours, theirs)
            ]
            peers.append(min(better)[1] if better else None)
        return peers


def compare_models(
    base: AnyModel,
    candidates: Sequence[AnyModel],
    text: Text | str | os.PathLike[str],
    *,
    n_ctx: int = 512,
    n_chunks: int | None = None,
    caches: Sequence[CacheTypes] = (),
    threads: int | None = None,
    budget: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Run the base once, and every candidate beside it, over a text's chunks.

    The base against itself, computed in other portions, gives the noise floor.

    Beside the models, memory holds the logits of one batch of the base and one context (cache, logits of a
    batch and activations) of whichever model is at work: no more with many candidates than with one. A
    chunk that is longer than a batch has its logits in a temporary file. `pyquant.evaluate.memory` says how
    many bytes that is.

    Parameters
    ----------
    base, candidates
        Models, each a path or a ModelFile.
    text
        The text, or the path of one.
    n_ctx, n_chunks
        Tokens of a chunk, and how many chunks of the text are used; None: all.
    caches
        Types of keys and values: for each, the base and all candidates are run with them too.
    threads
        None: all cores.
    budget
        Bytes of memory that the models and their working memory may take.
    progress
        Called with chunks done and all chunks; a chunk is done when every model has run over it.

    Raises
    ------
    ConfigError
        Also where the budget is exceeded, with the sizes.
    ModelFileError
        Also where a vocabulary is not the base's.
    TextError, RuntimeLibraryError
    OutputError
        The folder for temporary files has no room for the logits of a long chunk.
    """
    text = read_text(text)
    if len({path_of(model) for model in (base, *candidates)}) < 1 + len(candidates):
        raise ConfigError("compare: a model is given twice")
    if len({F16_CACHE, *caches}) < 1 + len(caches):
        raise ConfigError("compare: the same types of cache are given twice; f16 and f16 are always run")
    if not candidates and not caches:
        raise ConfigError("compare: give a model beside the base, or types of its cache")
    if budget is not None:
        check_budget([base, *candidates], n_ctx=n_ctx, budget=budget)
    files = [open_model(model) for model in (base, *candidates)]
    sizes = [sum(path.stat().st_size for path in file.paths) for file in files]
    with ExitStack() as stack:
        models = [stack.enter_context(Model(model)) for model in files]
        chunks = cut(models[0], text, n_ctx=n_ctx, n_chunks=n_chunks)
        for model in models[1:]:
            check_vocabulary(models[0], model, chunks, text)
        runs = [(model, cache) for cache in (F16_CACHE, *caches) for model in models]
        scores, noise = _run(runs, chunks, threads, progress)
    for model, model_scores in zip([*(model for model, _ in runs), models[0]], [*scores, noise]):
        model_scores.check(model.path, chunks.n_scored)
    floor = token_kld(noise.kld)
    return Comparison(
        text=str(text.path),
        text_sha256=text.sha256,
        n_ctx=n_ctx,
        n_chunks=chunks.n_chunks,
        n_tokens=len(scores[0].nll),
        base=BasePerplexity(str(models[0].path), *scores[0].perplexity()),
        noise_floor=NoiseFloor(
            n_chunks=min(NOISE_CHUNKS, chunks.n_chunks),
            kld=floor.mean,
            kld_max=floor.max,
            same_top=float(noise.same_top.mean()),
        ),
        candidates=[
            kld(_name(model, cache), scores[0], own) for (model, cache), own in zip(runs[1:], scores[1:])
        ],
        caches=[cache for _, cache in runs],
        sizes=sizes * (1 + len(caches)),
        bits=[8 * size / file.n_weights for size, file in zip(sizes, files)] * (1 + len(caches)),
        scores=scores,
    )


def _name(model: Model, cache: CacheTypes) -> str:
    return str(model.path) if cache == F16_CACHE else f"{model.path} ({cache})"


def _run(
    runs: Sequence[tuple[Model, CacheTypes]], chunks: Chunks, threads: int | None, progress: Progress | None
) -> tuple[list[Scores], Scores]:
    """Score all runs, the base's first, and the base beside itself over the first chunks."""
    n_scored, n_noise = chunks.n_scored, min(NOISE_CHUNKS, chunks.n_chunks)
    base = runs[0][0]
    scores = [Scores.empty(chunks.n_chunks * n_scored) for _ in runs]
    noise = Scores.empty(n_noise * n_scored)
    advance = in_chunks(progress, chunks, len(runs))
    for first, span in _spans(chunks, base.n_vocab):
        begin, end = first * n_scored, (first + span.n_chunks) * n_scored
        with BaseRun(base, span, threads, advance) as run:
            scores[0].part(begin, end).set(run.scores)
            if first < n_noise:
                again = run.score(base, lambda _: None, n_chunks=n_noise - first, n_ubatch=NOISE_UBATCH)
                noise.part(begin, begin + len(again.nll)).set(again)
            for (model, cache), model_scores in zip(runs[1:], scores[1:]):
                model_scores.part(begin, end).set(run.score(model, advance, cache=cache))
    return scores, noise


def _spans(chunks: Chunks, n_vocab: int) -> Iterator[tuple[int, Chunks]]:
    """Cut chunks into spans of whole batches whose logits fit into memory: each one's first chunk, and it."""
    n_batch = together(chunks.n_ctx)
    batch_bytes = 4 * n_vocab * chunks.n_scored * n_batch
    n = n_batch * max(1, bytes_in_memory(n_vocab, chunks.n_ctx) // batch_bytes)
    for first in range(0, chunks.n_chunks, n):
        yield first, Chunks(chunks.tokens[first : first + n])
