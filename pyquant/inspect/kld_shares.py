"""Split the KLD of quantized models: how much comes of weights, of activations, and of the cache.

Three runs of each model tell it, which differ in one thing each: its weights, dequantized to F16, so that
llama.cpp multiplies them with F16 activations, as it does in the base; the model itself, whose products
round activations to 8 bits; and the model itself with a cache of other types.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant.evaluate.baseline import Progress
from pyquant.evaluate.compare import compare_texts
from pyquant.evaluate.comparison import Comparison
from pyquant.evaluate.kld import mean_and_error
from pyquant.evaluate.samples import Named
from pyquant.files.temporary import temporary_folder
from pyquant.models.model_file import AnyModel, ModelFile, open_model
from pyquant.rounding.dequantize import dequantize_model

F16_BYTES = 2


@dataclass(frozen=True)
class Share:
    """A part of a mean KLD in nats, which may be negative; error: one standard error, token by token."""

    kld: float
    error: float

    @classmethod
    def of(cls, kld: NDArray[np.float64]) -> Share:
        """Sum up (n,) differences of tokens."""
        return cls(*mean_and_error(kld))


@dataclass(frozen=True)
class KldShares:
    """The parts of a model's KLD; they add up to it.

    Attributes
    ----------
    model : str
        With types of the cache, if it has such.
    file, cache_type_k, cache_type_v : str
    weights : Share
        KLD of the dequantized weights.
    activations : Share
        What rounding activations to 8 bits adds.
    cache : Share or None
        What the cache's types add; None for F16.
    total : Share
    """

    model: str
    file: str
    cache_type_k: str
    cache_type_v: str
    weights: Share
    activations: Share
    cache: Share | None
    total: Share

    def to_json(self) -> dict[str, Any]:
        """Return it as `pyquant compare --shares --json` prints each of a text's `shares`."""
        return asdict(self)


def kld_shares(
    comparisons: Sequence[Comparison],
    base: AnyModel,
    candidates: Sequence[AnyModel],
    texts: Sequence[Named],
    *,
    n_ctx: int = 512,
    n_chunks: int | None = None,
    threads: int | None = None,
    every_position: bool = False,
    progress: Progress | None = None,
) -> list[list[KldShares]]:
    """Run what comparisons have not run: the candidates' dequantized weights, beside the base again.

    They are in the folder for temporary files, 2 bytes for each weight: as many models at a time as half of
    it has room for.

    Parameters
    ----------
    comparisons
        What `compare_texts` makes of the other parameters, and of caches.
    progress
        Called with the chunks that are done of all candidates, and all of them.

    Returns
    -------
    shares : for each text
        Of each candidate, or of each candidate with each cache.

    Raises
    ------
    ModelFileError
        Also where a weight is too large for F16.
    OutputError
        The folder for temporary files has no room.
    """
    weights: list[list[NDArray[np.float64]]] = []
    for group in _groups([open_model(candidate) for candidate in candidates]):

        def told(done: int, total: int, before: int = len(weights), n: int = len(group)) -> None:
            if progress:
                progress(before * total + n * done, len(candidates) * total)

        with temporary_folder() as folder:
            outputs = [folder / f"{i}.gguf" for i in range(len(group))]
            for candidate, output in zip(group, outputs):
                dequantize_model(candidate, output, "F16", threads=threads)
            of_texts = compare_texts(
                base,
                outputs,
                texts,
                n_ctx=n_ctx,
                n_chunks=n_chunks,
                threads=threads,
                every_position=every_position,
                progress=told,
            )
        weights += [[one.scores[1 + i].kld for one in of_texts] for i in range(len(group))]
    return [list(_shares(one, [own[i] for own in weights])) for i, one in enumerate(comparisons)]


def _groups(candidates: Sequence[ModelFile]) -> Iterator[list[ModelFile]]:
    """Put together what half of the room for temporary files takes; the base runs once for each group."""
    room = shutil.disk_usage(tempfile.gettempdir()).free // 2
    group: list[ModelFile] = []
    for candidate in candidates:
        if group and F16_BYTES * sum(model.n_weights for model in [*group, candidate]) > room:
            yield group
            group = []
        group.append(candidate)
    if group:
        yield group


def _shares(comparison: Comparison, weights: Sequence[NDArray[np.float64]]) -> Iterator[KldShares]:
    """Split one text's KLDs. weights: of each candidate's dequantized weights, token by token."""
    # Of the base and all candidates, first with a cache of F16, then with each cache.
    names = [comparison.base.model, *(candidate.model for candidate in comparison.candidates)]
    caches = [(cache.keys, cache.values) for cache in comparison.caches]
    kld = [scores.kld for scores in comparison.scores]
    period = 1 + len(weights)
    for i, of_weights in enumerate(weights, 1):
        parts = Share.of(of_weights), Share.of(kld[i] - of_weights)
        with_caches = range(i + period, len(kld), period)
        for j in with_caches:
            yield KldShares(
                names[j], names[i], *caches[j], *parts, Share.of(kld[j] - kld[i]), Share.of(kld[j])
            )
        if not with_caches:
            yield KldShares(names[i], names[i], *caches[i], *parts, None, Share.of(kld[i]))
