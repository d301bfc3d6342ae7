"""Split the KLD of quantized models: how much comes of weights, of activations, and of the cache.

Three runs of each model tell it, which differ in one thing each: its weights, dequantized to F16, so that
llama.cpp multiplies them with F16 activations, as it does in the base; the model itself, whose products
round activations to 8 bits; and the model itself with a cache of other types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant.evaluate.baseline import Baseline, Progress
from pyquant.evaluate.compare import Comparison
from pyquant.evaluate.kld import mean_and_error
from pyquant.files.temporary import temporary_folder
from pyquant.files.text import AnyText
from pyquant.models.model_file import AnyModel
from pyquant.rounding.dequantize import dequantize_model


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
    weights : Share
        KLD of the dequantized weights.
    activations : Share
        What rounding activations to 8 bits adds.
    cache : Share or None
        What the cache's types add; None for f16.
    total : Share
    """

    model: str
    weights: Share
    activations: Share
    cache: Share | None
    total: Share

    def to_json(self) -> dict[str, Any]:
        """Return it as `pyquant compare --shares --json` prints each of its `shares`."""
        return asdict(self)


def kld_shares(
    comparison: Comparison,
    base: AnyModel,
    candidates: Sequence[AnyModel],
    text: AnyText,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[KldShares]:
    """Run what a comparison has not run yet: the base again, and each candidate's dequantized weights.

    They are in the folder for temporary files, one model at a time, 2 bytes for each weight.

    Parameters
    ----------
    comparison
        Of the base and the candidates, in this order, on the text.
    base, candidates, text, threads
        What it was made of.
    progress
        Called with the chunks that are done of the model at work, and all of them.

    Returns
    -------
    shares : list of KldShares
        Of each candidate, or of each candidate with each cache.

    Raises
    ------
    ModelFileError
        Also where a weight is too large for F16.
    OutputError
        The folder for temporary files has no room.
    TextError, RuntimeLibraryError
    """
    scores, names = comparison.scores[1:], [candidate.model for candidate in comparison.candidates]
    n = len(candidates)
    with_cache = range(n + 1, len(scores))  # the base with a cache, then candidates with it, and so on
    shares = []
    with Baseline(
        base, text, n_ctx=comparison.n_ctx, n_chunks=comparison.n_chunks, threads=threads, progress=progress
    ) as baseline:
        for i, candidate in enumerate(candidates):
            with temporary_folder() as folder:
                output = folder / "weights.gguf"
                dequantize_model(candidate, output, "F16", threads=threads)
                weights = baseline.scores_of(output, progress=progress).kld
            own = scores[i].kld
            alone = Share.of(weights), Share.of(own - weights)
            caches = [j for j in with_cache if (j - n) % (n + 1) == i + 1]
            shares += [
                KldShares(names[j], *alone, Share.of(scores[j].kld - own), Share.of(scores[j].kld))
                for j in caches
            ] or [KldShares(names[i], *alone, None, Share.of(own))]
    return shares
