"""Measure how far models are from a base, token by token: llama-perplexity's KLD, without a file.

Statistics are exact, percentiles too: 25 bytes of each scored token and model are kept.
`pyquant.evaluate.run_sample` says how models run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Any

from pyquant.errors import ConfigError
from pyquant.evaluate.baseline import Progress
from pyquant.evaluate.by_position import Span, kld_by_position
from pyquant.evaluate.kld import (
    ERRORS,
    Kld,
    Scores,
    error_of_difference,
    kld,
    token_kld,
)
from pyquant.evaluate.memory import check_budget
from pyquant.evaluate.paired import PairedDifference, paired_differences
from pyquant.evaluate.run_sample import ScoredSample, run_sample
from pyquant.evaluate.samples import Named, Sample, prepare
from pyquant.evaluate.variant import Variant
from pyquant.files.text import NamedText, Text, read_text
from pyquant.llama.cache_types import F16_CACHE, CacheTypes
from pyquant.llama.model import Model, path_of
from pyquant.models.model_file import AnyModel, open_model

SCHEMA = "pyquant.compare/1"


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
    name : str
        What the text is called.
    text, text_sha256 : str
        Its path, and its hash, of a plain text less a newline at its end.
    n_ctx, n_chunks, n_tokens : int
        Tokens of a chunk, of conversations of the longest one; chunks; and scored tokens of all of them.
    base : BasePerplexity
    noise_floor : NoiseFloor
    candidates : list of KLD
        In the order in which they were given; then, for each cache's types, the base and all of them.
    caches : list of CacheTypes
        Of each model that was run, the base first.
    paired : list of PairedDifference
        Of each two candidates.
    by_position : list of Span
        KLD along the context.
    sizes : list of int
        Bytes of each model's files, the base first.
    bits : list of float
        The same per weight, times 8.
    scores : list of Scores
        What each model said of every scored token, the base first. Not in the JSON.
    """

    name: str
    text: str
    text_sha256: str
    n_ctx: int
    n_chunks: int
    n_tokens: int
    base: BasePerplexity
    noise_floor: NoiseFloor
    candidates: list[Kld]
    caches: list[CacheTypes]
    paired: list[PairedDifference]
    by_position: list[Span]
    sizes: list[int]
    bits: list[float]
    scores: list[Scores] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return all statistics as `pyquant compare --json` prints them."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "text": self.text,
            "text_sha256": self.text_sha256,
            "n_ctx": self.n_ctx,
            "n_chunks": self.n_chunks,
            "n_tokens": self.n_tokens,
            "base": asdict(self.base) | {"bits": self.bits[0], "size": self.sizes[0]},
            "noise_floor": asdict(self.noise_floor),
            "candidates": [
                candidate.to_json()
                | {
                    "file": candidate.model.removesuffix(f" ({cache})"),
                    "cache_type_k": cache.keys,
                    "cache_type_v": cache.values,
                    "bits": bits,
                    "size": size,
                    "dominated_by": peer,
                }
                for candidate, cache, bits, size, peer in zip(
                    self.candidates, self.caches[1:], self.bits[1:], self.sizes[1:], self.dominated_by()
                )
            ],
            "paired": [asdict(pair) for pair in self.paired],
            "by_position": [asdict(span) for span in self.by_position],
        }

    def renamed(self, model: str, name: str) -> Comparison:
        """Call a candidate otherwise, as one whose folder goes."""

        def called(one: str) -> str:
            return name if one == model else one

        return replace(
            self,
            candidates=[replace(one, model=called(one.model)) for one in self.candidates],
            paired=[
                replace(pair, model=called(pair.model), other=called(pair.other)) for pair in self.paired
            ],
        )

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
    batch and activations) of whichever model is at work: no more with many candidates than with one. Over
    chunks that are longer than a batch as many models run side by side as half of the memory has room for,
    each with a context. `pyquant.evaluate.memory` says how many bytes that is.

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
    """
    text = read_text(text)
    (only,) = compare_texts(
        base,
        candidates,
        [NamedText(text.path.name, text)],
        n_ctx=n_ctx,
        n_chunks=n_chunks,
        caches=caches,
        threads=threads,
        budget=budget,
        progress=progress,
    )
    return only


def compare_texts(
    base: AnyModel,
    candidates: Sequence[AnyModel],
    texts: Sequence[Named],
    *,
    n_ctx: int = 512,
    n_chunks: int | None = None,
    caches: Sequence[CacheTypes] = (),
    threads: int | None = None,
    budget: int | None = None,
    every_position: bool = False,
    progress: Progress | None = None,
) -> list[Comparison]:
    """Do what `compare_models` does with several texts. All of them are read before a model runs.

    Parameters
    ----------
    texts
        Plain texts, and conversations, whose answers are scored.
    n_ctx
        Tokens of a plain text's chunk; a conversation is a chunk of its own length.
    n_chunks
        Chunks that are used of each text.
    every_position
        Compute KLD by position in the first half of chunks too; other statistics are of the second half.

    Raises
    ------
    ConfigError
        Also where two texts have the same name.
    TextError
        Also where a conversation has no answer.
    ModelFileError
        Also where the base's chat template fails.
    """
    _check(base, candidates, texts, caches)
    if budget is not None:
        check_budget([base, *candidates], n_ctx=n_ctx, budget=budget)
    files = [open_model(model) for model in (base, *candidates)]
    sizes = [sum(path.stat().st_size for path in file.paths) for file in files]
    bits = [8 * size / file.n_weights for size, file in zip(sizes, files)]
    with ExitStack() as stack:
        models = [stack.enter_context(Model(model)) for model in files]
        samples = [
            prepare(models[0], text, n_ctx=n_ctx, n_chunks=n_chunks, every_position=every_position)
            for text in texts
        ]
        for sample in samples:
            for model in models[1:]:
                sample.check(models[0], model)
        variants = [Variant(model, cache) for cache in (F16_CACHE, *caches) for model in models]
        comparisons = []
        for sample, told in zip(samples, _parts(progress, [sample.n_chunks for sample in samples])):
            scored = run_sample(variants, sample, threads, budget=budget, progress=told)
            comparisons.append(_summary(variants, sample, scored, sizes, bits))
    return comparisons


def _check(
    base: AnyModel, candidates: Sequence[AnyModel], texts: Sequence[Named], caches: Sequence[CacheTypes]
) -> None:
    if len({path_of(model) for model in (base, *candidates)}) < 1 + len(candidates):
        raise ConfigError("compare: a model is given twice")
    if len({F16_CACHE, *caches}) < 1 + len(caches):
        raise ConfigError("compare: types of a cache are given twice; f16 for both is always run")
    if not texts:
        raise ConfigError("compare: give a text at least")
    names = [text.name for text in texts]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"compare: two texts have the name {name}; name one by NAME=FILE")


def _parts(progress: Progress | None, n_chunks: Sequence[int]) -> Iterator[Progress | None]:
    """Turn progress in all texts' chunks into progress in each text's, one after the other."""
    for before, _ in zip(accumulate([0, *n_chunks]), n_chunks):
        yield None if progress is None else partial(_told, progress, before, sum(n_chunks))


def _told(progress: Progress, before: int, total: int, done: int, _of_text: int) -> None:
    progress(before + done, total)


def _summary(
    variants: Sequence[Variant], sample: Sample, scored: ScoredSample, sizes: list[int], bits: list[float]
) -> Comparison:
    counted = sample.counted(scored.positions)
    base, *others = (scores.at(counted) for scores in scored.scores)
    of_noise = scored.noise.at(counted[: len(scored.noise.nll)])
    floor = token_kld(of_noise.kld)
    names = [variant.name for variant in variants]
    n_caches = len(variants) // len(sizes)
    return Comparison(
        name=sample.name,
        text=sample.source,
        text_sha256=sample.sha256,
        n_ctx=sample.n_ctx,
        n_chunks=sample.n_chunks,
        n_tokens=len(base.nll),
        base=BasePerplexity(names[0], *base.perplexity()),
        noise_floor=NoiseFloor(scored.n_noise, floor.mean, floor.max, float(of_noise.same_top.mean())),
        candidates=[kld(name, base, own) for name, own in zip(names[1:], others)],
        caches=[variant.cache for variant in variants],
        paired=paired_differences(names[1:], [own.kld for own in others], scored.chunks[counted]),
        by_position=kld_by_position([own.kld for own in scored.scores[1:]], scored.positions),
        sizes=sizes * n_caches,
        bits=bits * n_caches,
        scores=[base, *others],
    )
