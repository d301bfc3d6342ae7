"""Measure how far models are from a base, token by token: llama-perplexity's KLD, without a file.

Statistics are exact, percentiles too: 25 bytes of each scored token and model are kept.
`pyquant.evaluate.run_sample` says how models run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import accumulate

from pyquant.errors import ConfigError
from pyquant.evaluate.baseline import Progress
from pyquant.evaluate.by_position import kld_by_position
from pyquant.evaluate.comparison import BasePerplexity, Comparison, NoiseFloor
from pyquant.evaluate.kld import kld, token_kld
from pyquant.evaluate.memory import check_budget
from pyquant.evaluate.paired import paired_differences
from pyquant.evaluate.run_sample import ScoredSample, run_sample
from pyquant.evaluate.samples import Named, Sample, prepare
from pyquant.evaluate.variant import Variant
from pyquant.files.text import NamedText, Text, read_text
from pyquant.llama.cache_types import F16_CACHE, CacheTypes
from pyquant.llama.model import Model, path_of
from pyquant.models.model_file import AnyModel, open_model


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

    The base against itself, computed in other portions, gives the noise floor; from a GPU, on the CPU.

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
    _check(base, candidates, caches)
    files = [base, *candidates]
    crossed = [(model, cache) for cache in (F16_CACHE, *caches) for model in files]
    return compare_variants(
        base,
        crossed[1:],
        texts,
        n_ctx=n_ctx,
        n_chunks=n_chunks,
        threads=threads,
        budget=budget,
        every_position=every_position,
        progress=progress,
    )


def compare_variants(
    base: AnyModel,
    others: Sequence[tuple[AnyModel, CacheTypes]],
    texts: Sequence[Named],
    *,
    n_ctx: int = 512,
    n_chunks: int | None = None,
    threads: int | None = None,
    budget: int | None = None,
    every_position: bool = False,
    progress: Progress | None = None,
) -> list[Comparison]:
    """Do what `compare_texts` does with any models, each with any cache, beside the base with one of F16.

    Parameters
    ----------
    others
        Models, of which the base may be one, and the types of their caches. They are the comparisons'
        candidates, in this order.
    """
    _check_names(texts)
    files = {path_of(model): open_model(model) for model in [base, *(model for model, _ in others)]}
    with ExitStack() as stack:
        models = {path: stack.enter_context(Model(file)) for path, file in files.items()}
        variants = [Variant(models[path_of(model)], cache) for model, cache in [(base, F16_CACHE), *others]]
        of_base = variants[0].model
        again = stack.enter_context(Model(of_base.file, on_cpu=True)) if of_base.on_gpu else None
        samples = [
            prepare(of_base, text, n_ctx=n_ctx, n_chunks=n_chunks, every_position=every_position)
            for text in texts
        ]
        for sample in samples:
            for model in models.values():
                if model is not of_base:
                    sample.check(of_base, model)
            if budget is not None:
                check_budget(
                    [variant.model.file for variant in variants],
                    n_ctx=sample.n_ctx,
                    budget=budget,
                    caches=[variant.cache for variant in variants],
                    abreast=sample.even is None,
                )
        comparisons = []
        for sample, told in zip(samples, _parts(progress, [sample.n_chunks for sample in samples])):
            scored = run_sample(variants, sample, threads, again=again, budget=budget, progress=told)
            comparisons.append(_summary(variants, sample, scored))
    return comparisons


def _check(base: AnyModel, candidates: Sequence[AnyModel], caches: Sequence[CacheTypes]) -> None:
    if isinstance(candidates, str | os.PathLike):
        raise ConfigError(f"compare: candidates are a list of models, got {os.fspath(candidates)!r} alone")
    if len({path_of(model) for model in (base, *candidates)}) < 1 + len(candidates):
        raise ConfigError("compare: a model is given twice")
    if len({F16_CACHE, *caches}) < 1 + len(caches):
        raise ConfigError("compare: types of a cache are given twice; f16 for both is always run")


def _check_names(texts: Sequence[Named]) -> None:
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


def _summary(variants: Sequence[Variant], sample: Sample, scored: ScoredSample) -> Comparison:
    counted = sample.counted(scored.positions)
    base, *others = (scores.at(counted) for scores in scored.scores)
    of_noise = scored.noise.at(counted[: len(scored.noise.nll)])
    floor = token_kld(of_noise.kld)
    names = [variant.name for variant in variants]
    files = [variant.model.file for variant in variants]
    sizes = [sum(path.stat().st_size for path in file.paths) for file in files]
    return Comparison(
        name=sample.name,
        kind=sample.kind,
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
        sizes=sizes,
        bits=[8 * size / file.n_weights for size, file in zip(sizes, files)],
        scores=[base, *others],
        chunks=scored.chunks[counted],
    )
