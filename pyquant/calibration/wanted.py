"""List what a calibration is to run the model over: texts, their weights, and how many chunks of each."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise

from pyquant import limits
from pyquant.calibration.hessian_file import CalibrationText
from pyquant.calibration.kept_texts import ToWrite, write_texts
from pyquant.calibration.sources import MIXTURE, MIXTURE_CHUNKS, BuiltIn, chunks_hash
from pyquant.errors import ConfigError
from pyquant.files.text import Text, read_text
from pyquant.llama.chunks import Chunks, cut
from pyquant.llama.model import Model

WRITING = "generating texts"

# Called with what is done, and its steps done and all.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class WantedText:
    """A text, how much each of its tokens counts, and how many chunks are used of it at most."""

    text: Text | BuiltIn
    weight: float
    n_chunks: int | None

    def of(self, chunks: Chunks) -> CalibrationText:
        """Say what was used of it."""
        if isinstance(self.text, Text):
            return CalibrationText(str(self.text.path), self.text.sha256, self.weight, chunks.n_chunks)
        return CalibrationText(self.text.name, chunks_hash(chunks), self.weight, chunks.n_chunks)


def chunks_of(
    wanted: Sequence[WantedText], model: Model, n_ctx: int, threads: int | None, progress: Progress | None
) -> list[Chunks]:
    """Cut texts into chunks, or take them where they have no file; the model generates its own together.

    progress: called with WRITING, the tokens that are generated, and all. Errors are those of `cut` and of
    `write_texts`.
    """

    def without_end(wish: WantedText) -> int:
        return wish.n_chunks or MIXTURE_CHUNKS

    def take(wish: WantedText) -> Chunks | ToWrite:
        if isinstance(wish.text, Text):
            return cut(model, wish.text, n_ctx=n_ctx, n_chunks=wish.n_chunks)
        return wish.text.take(model, n_ctx, without_end(wish))

    taken = [take(wish) for wish in wanted]
    asked = [(each, without_end(wish)) for each, wish in zip(taken, wanted) if isinstance(each, ToWrite)]
    told = partial(progress, WRITING) if progress else None
    written = iter(write_texts(model, asked, n_ctx, threads, told))
    return [next(written) if isinstance(each, ToWrite) else each for each in taken]


def wanted_texts(
    texts: Sequence[str | os.PathLike[str] | Text | BuiltIn] | None,
    weights: Sequence[float] | None,
    n_chunks: int | None,
) -> list[WantedText]:
    """List what is wanted; the mixture where nobody named a text.

    Raises ConfigError: weights and texts do not go together, or a number is out of its range. TextError: a
    text cannot be read.
    """
    if n_chunks is not None:
        limits.CHUNKS.check("chunks", n_chunks)
    if texts is None:
        if weights is not None:
            raise ConfigError("weight: is of a text, and none is given")
        return _mixture(n_chunks or MIXTURE_CHUNKS)
    if not texts:
        raise ConfigError("text: at least one is needed")
    weights = weights or [1.0] * len(texts)
    if len(weights) != len(texts):
        raise ConfigError(f"weight: {len(weights)} given for {len(texts)} texts; give one for each, in order")
    for weight in weights:
        limits.WEIGHT.check("weight", weight)
    read = [text if isinstance(text, BuiltIn) else read_text(text) for text in texts]
    return [WantedText(text, weight, n_chunks) for text, weight in zip(read, weights)]


def evened(wanted: Sequence[WantedText], cuts: Sequence[Chunks]) -> list[WantedText]:
    """Scale weights so that a token counts 1 in the mean: ratios alone matter, and counts are of tokens."""
    n_chunks = [chunks.n_chunks for chunks in cuts]
    scale = sum(n_chunks) / sum(wish.weight * n for wish, n in zip(wanted, n_chunks))
    return [replace(wish, weight=wish.weight * scale) for wish in wanted]


def _mixture(n_chunks: int) -> list[WantedText]:
    """Give each text its share of the chunks; at least one, and then of less weight."""
    parts = [n_chunks * share for share in MIXTURE.values()]
    ends = [round(end) for end in accumulate(parts)]  # so that all sizes make up the chunks
    sizes = [max(1, end - begin) for begin, end in pairwise([0, *ends])]
    return [WantedText(text, part / size, size) for text, part, size in zip(MIXTURE, parts, sizes)]
