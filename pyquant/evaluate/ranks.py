"""Probability of the right token, beside the rank that a base gives it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.errors import ModelFileError
from pyquant.evaluate.kld import not_finite
from pyquant.files.text import Text, read_text
from pyquant.llama.chunks import cut, forward, make_context
from pyquant.llama.model import Model

# (chunks done, all chunks of all models)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class RankedProbabilities:
    """Ranks that models give the n scored tokens of a text."""

    # (n,) int32: how many tokens the base finds at least as likely as the token that came; 1 is the best
    ranks: NDArray[np.int32]
    # (n,) float32 for each model, the base first: probability of the token that came
    probabilities: list[NDArray[np.float32]]


def measure_ranks(
    base: str | os.PathLike[str],
    candidates: Sequence[str | os.PathLike[str]],
    text: Text | str | os.PathLike[str],
    *,
    n_ctx: int = 512,
    n_chunks: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> RankedProbabilities:
    """Run models over a text, one after the other, so that one of them is in memory at a time.

    Parameters
    ----------
    base
        The model whose ranks count.
    candidates
        Models with its vocabulary.
    text
        A text, or the path of one, cut into chunks of `n_ctx` tokens.
    n_chunks
        Only the first ones; all, if None.
    progress
        Told how many chunks are done.

    Raises
    ------
    ModelFileError
        A model cannot be read, gives no finite numbers, or has another vocabulary than the base.
    ConfigError, TextError
        The text does not make one chunk.
    """
    text = read_text(text)
    paths = [Path(base), *map(Path, candidates)]
    vocabulary: tuple[int, NDArray[np.int32]] | None = None  # how many tokens there are, those of the text
    ranks: list[NDArray[np.int32]] = []
    probabilities = []
    for i, path in enumerate(paths):
        with Model(path) as model:
            chunks = cut(model, text, n_ctx=n_ctx, n_chunks=n_chunks)
            if vocabulary is None:
                vocabulary = model.n_vocab, chunks.tokens
            elif model.n_vocab != vocabulary[0] or not np.array_equal(chunks.tokens, vocabulary[1]):
                raise ModelFileError(f"{path}: its vocabulary is another one than that of {base}")
            losses = []
            with make_context(model, n_ctx, threads=threads) as context:
                for piece in forward(context, chunks):
                    losses.append(
                        _core.negative_log_likelihood(piece.logits, piece.targets, context.n_threads)
                    )
                    if i == 0:
                        ranks.append(ranks_of(piece.logits, piece.targets))
                    if progress:
                        progress(i * chunks.n_chunks + piece.chunk + 1, len(paths) * chunks.n_chunks)
        loss = np.concatenate(losses)
        if not (finite := np.isfinite(loss)).all():
            raise not_finite(path, int(np.argmin(finite)) // chunks.n_scored)
        probabilities.append(np.exp(-loss).astype(np.float32))
    return RankedProbabilities(np.concatenate(ranks), probabilities)


def ranks_of(logits: NDArray[np.float32], targets: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the rank of the token that came in each row of logits.

    logits: (n, n_vocab) float32.
    targets: (n,) int32: indices of tokens.
    Returns (n,) int32: 1 for the most likely token. Tokens of the same logit share the last of their ranks.
    """
    own = np.take_along_axis(logits, targets[:, None], axis=1)
    return (logits >= own).sum(axis=1, dtype=np.int32)
