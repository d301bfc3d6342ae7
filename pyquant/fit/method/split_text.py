"""Tokens to calibrate on, and tokens held out to choose among files by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from platform import python_version

import numpy as np

from pyquant.calibration.sample import MOST_CHUNKS, spread
from pyquant.calibration.sources import MIXTURE, BuiltIn, chunks_hash, held_out_mixture, n_written
from pyquant.errors import TextError
from pyquant.files.text import Text
from pyquant.llama.chunks import Chunks, cut
from pyquant.llama.model import Model
from pyquant.models.model_file import ModelFile

N_CHUNKS = 128  # to calibrate on, where matrices are not wide
TOKENS_PER_COLUMN = 8  # of the widest matrices: a tenth of the error is lost there (docs/methods/gptq.md)
HELD_OUT = 8  # chunks; a ninth of the texts where they are short


@dataclass(frozen=True)
class SplitText:
    """Texts in two parts that share no chunk.

    Attributes
    ----------
    texts
        To calibrate on; None: the default mixture.
    n_chunks
        Chunks of `texts` together.
    held_out
        Chunks that no statistics have seen.
    key
        Tells these texts from others.
    calibration
        The chunks of `texts`, of each text; empty for the default mixture.
    """

    texts: list[BuiltIn] | None
    n_chunks: int
    held_out: Chunks
    key: str
    calibration: Sequence[Chunks] = ()

    @property
    def n_written(self) -> int:
        """How many chunks the model itself writes."""
        return n_written(self.n_chunks) if self.texts is None else 0


def widest_columns(model: ModelFile) -> int:
    """Count the columns of the widest matrices in layers that all tokens enter."""
    return max((t.n_per_row for t in model.tensors if t.layer >= 0 and t.n_experts == 1), default=1)


def chunks_for(model: ModelFile, n_ctx: int) -> int:
    """Choose how many chunks of n_ctx tokens to calibrate on, at most as many as statistics keep."""
    return min(MOST_CHUNKS, max(N_CHUNKS, -(-TOKENS_PER_COLUMN * widest_columns(model) // n_ctx)))


def split_text(model: Model, texts: Sequence[Text] | None, n_ctx: int, n_chunks: int) -> SplitText:
    """Split texts.

    Parameters
    ----------
    model
        Whose tokens they are cut into.
    texts
        None: the default mixture, and other documents of its kinds to choose by.
    n_ctx
        Tokens of a chunk.
    n_chunks
        The most chunks to calibrate on.

    Raises
    ------
    TextError
        There are fewer than two chunks.
    """
    if texts is None:
        key = f"mixture of {n_chunks}: {default_texts()}"
        return SplitText(None, n_chunks, held_out_mixture(model, n_ctx, HELD_OUT), key)
    cuts = [cut(model, text, n_ctx=n_ctx).tokens for text in texts]
    n = sum(map(len, cuts))
    if n < 2:
        raise TextError(
            f"{texts[0].path}: too short: {n} chunk of {n_ctx} tokens, and two are needed, one to calibrate "
            f"on and one to choose by; give more text or a smaller context (--ctx)"
        )
    # At even distances over all texts: those that are held out, and of the others those that are used.
    held = np.linspace(0, n - 1, min(HELD_OUT, max(1, n // 9)) + 2).round().astype(int)[1:-1]
    others = np.setdiff1d(np.arange(n), held)
    used = spread(others[:, None].astype(np.int32), n_chunks)[:, 0]
    pooled, of_text = np.concatenate(cuts), np.repeat(np.arange(len(cuts)), [len(tokens) for tokens in cuts])
    taken = [
        (str(text.path), Chunks(pooled[used[of_text[used] == number]]))
        for number, text in enumerate(texts)
        if (of_text[used] == number).any()
    ]
    return SplitText(
        [BuiltIn(name, partial(_give, chunks)) for name, chunks in taken],
        len(used),
        Chunks(pooled[held]),
        " ".join(chunks_hash(chunks) for _, chunks in taken),
        [chunks for _, chunks in taken],
    )


def default_texts() -> str:
    """Tell the default mixture's texts from those of other releases: some are of Python's library."""
    return f"{', '.join(text.name for text in MIXTURE)}; Python {python_version()}"


def _give(chunks: Chunks, *_of_built_in: object) -> Chunks:
    return chunks
