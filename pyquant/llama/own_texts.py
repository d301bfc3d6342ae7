"""Texts that a model generates, of the same number of tokens each: they go on where the model would end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.llama.cache import cache_memory
from pyquant.llama.check_logits import check_logits
from pyquant.llama.model import Model
from pyquant.machine.cpu import n_threads
from pyquant.models.model_file import ModelFile

# Texts that are continued together: a step reads all weights once for all of them. Each keeps its keys and
# values, of which some memory holds fewer of a large model.
FEWEST, MOST = 16, 96
CACHE_BYTES = 2 << 30


@dataclass(frozen=True)
class OwnText:
    """A text that a model is to write.

    Attributes
    ----------
    seed, number
        What its random numbers depend on.
    begin
        Called with 0 at the beginning, and wherever the model ends with how often it has ended; returns the
        tokens that stand there, in place of the end: one at least.
    """

    seed: int
    number: int
    begin: Callable[[int], list[int]]


def most_together(model: ModelFile, n_tokens: int) -> int:
    """Say how many texts of n_tokens a model continues together."""
    return min(max(FEWEST, CACHE_BYTES // max(1, cache_memory(model, n_tokens, 1))), MOST)


def write_tokens(
    model: Model, texts: Sequence[OwnText], n_tokens: int, *, threads: int | None = None
) -> NDArray[np.int32]:
    """Let a model generate any number of texts; the rest is as of `write_together`."""
    written = np.empty((len(texts), n_tokens), np.int32)
    step = most_together(model.file, n_tokens)
    for first in range(0, len(texts), step):
        part = slice(first, first + step)
        written[part] = write_together(model, texts[part], n_tokens, threads=threads)
    return written


def write_together(
    model: Model,
    texts: Sequence[OwnText],
    n_tokens: int,
    *,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
    observer: _core.Bf16Pass | None = None,
) -> NDArray[np.int32]:
    """Let a model generate texts, all of them token by token.

    Tokens are drawn from all ordinary ones and from those that end a text, with the probabilities that the
    model gives them.

    Parameters
    ----------
    texts, n_tokens
        What to write, `most_together` at most, and the tokens of each.
    progress
        Called with the tokens written.
    observer
        Sees the nodes of the model's graph.

    Returns
    -------
    (len(texts), n_tokens) int32

    Raises
    ------
    ModelFileError
    """
    written = np.empty((len(texts), n_tokens), np.int32)
    vocabulary = model.vocabulary
    ends = frozenset(vocabulary.end_tokens().tolist())
    allowed = np.zeros(vocabulary.n_tokens, bool)
    allowed[[*vocabulary.ordinary_tokens(), *ends]] = True
    given = [deque(text.begin(0)) for text in texts]  # tokens that come next, whatever the model says
    n_ends = [0] * len(texts)
    drawn = [0] * len(texts)
    with (
        model.context(
            n_ctx=n_tokens, n_seq=len(texts), n_batch=len(texts), n_ubatch=len(texts), threads=threads,
            observer=observer,
        ) as context,
        ThreadPoolExecutor(n_threads(threads)) as pool,
    ):  # fmt: skip
        for position in range(n_tokens):
            for i, token in enumerate(drawn):
                if not given[i] and token in ends:
                    n_ends[i] += 1
                    given[i].extend(texts[i].begin(n_ends[i]))
                written[i, position] = given[i].popleft() if given[i] else token
            logits = context.decode(written[:, position : position + 1], position, np.ones(1, bool))[:, 0]
            check_logits(model.path, logits, "what it generates")
            numbers = [uniform(text.seed, text.number, position) for text in texts]
            drawn = list(pool.map(draw, logits, repeat(allowed), numbers))
            if progress:
                progress((position + 1) * len(texts))
    return written


def draw(logits: NDArray[np.float32], allowed: NDArray[np.bool_], number: float) -> int:
    """Draw a token by its probability among those that are allowed.

    logits, allowed: (n_vocab,).
    number: in [0, 1): where the sum of probabilities is cut.
    """
    weights = np.where(allowed, np.exp(logits - logits.max()), np.float32(0))
    sums = weights.astype(np.float64).cumsum()  # in float64 alone: numpy converts a part at a time otherwise
    token = int(sums.searchsorted(number * sums[-1], side="right"))
    return min(token, len(allowed) - 1 - int(allowed[::-1].argmax()))


def uniform(seed: int, sequence: int, position: int) -> float:
    """Return a random number in [0, 1) that depends on these three alone: the first one of their Philox."""
    philox = np.random.Philox(counter=[position, 0, 0, 0], key=[seed, sequence])
    return float(np.random.Generator(philox).random())
