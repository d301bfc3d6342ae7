"""Texts that a model writes itself: sequences of so many tokens, which go on where the model would end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pyquant.llama.check_logits import check_logits
from pyquant.llama.context import Context
from pyquant.llama.model import Model

TOGETHER = 16  # sequences that are continued together: each keeps its keys and values


def write_tokens(
    model: Model,
    n_sequences: int,
    n_tokens: int,
    begin: Callable[[int], list[int]],
    *,
    seed: int = 0,
    first: int = 0,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> NDArray[np.int32]:
    """Let a model write sequences of tokens.

    Tokens are drawn from all ordinary ones and from those that end a text, with the probabilities that the
    model gives them.

    Parameters
    ----------
    n_sequences, n_tokens
        How many sequences, and the tokens of each.
    begin
        Called with 0 at the beginning of a sequence, and wherever the model ends with how often it has
        ended; returns the tokens that stand there, in place of the end: one at least.
    seed, first
        What the random numbers depend on, and the number of the first sequence, which they depend on too.
    progress
        Called with the tokens written, and all.

    Returns
    -------
    (n_sequences, n_tokens) int32

    Raises
    ------
    ModelFileError
    """
    written = np.empty((n_sequences, n_tokens), np.int32)
    for begun in range(0, n_sequences, TOGETHER):
        part = written[begun : begun + TOGETHER]

        def told(n_each: int, before: int = begun * n_tokens, n: int = len(part)) -> None:
            if progress:
                progress(before + n_each * n, written.size)

        with model.context(
            n_ctx=n_tokens, n_seq=len(part), n_batch=len(part), n_ubatch=len(part), threads=threads
        ) as context:
            _write(context, part, begin, seed, first + begun, told)
    return written


def _write(
    context: Context,
    written: NDArray[np.int32],
    begin: Callable[[int], list[int]],
    seed: int,
    first: int,
    told: Callable[[int], None],
) -> None:
    vocabulary = context.model.vocabulary
    ends = frozenset(vocabulary.end_tokens().tolist())
    allowed = np.zeros(vocabulary.n_tokens, bool)
    allowed[[*vocabulary.ordinary_tokens(), *ends]] = True
    given = [deque(begin(0)) for _ in written]  # tokens that come next, whatever the model says
    n_ends = [0] * len(written)
    drawn = [0] * len(written)
    for position in range(written.shape[1]):
        for i, token in enumerate(drawn):
            if not given[i] and token in ends:
                n_ends[i] += 1
                given[i].extend(begin(n_ends[i]))
            written[i, position] = given[i].popleft() if given[i] else token
        logits = context.decode(written[:, position : position + 1], position, np.ones(1, bool))[:, 0]
        check_logits(context.model.path, logits, "what it writes")
        drawn = [draw(row, allowed, uniform(seed, first + i, position)) for i, row in enumerate(logits)]
        told(position + 1)


def draw(logits: NDArray[np.float32], allowed: NDArray[np.bool_], number: float) -> int:
    """Draw a token by its probability among those that are allowed.

    logits, allowed: (n_vocab,).
    number: in [0, 1): where the sum of probabilities is cut.
    """
    weights = np.where(allowed, np.exp(logits - logits.max()), np.float32(0))
    sums = weights.cumsum(dtype=np.float64)
    token = int(sums.searchsorted(number * sums[-1], side="right"))
    return min(token, int(np.flatnonzero(allowed)[-1]))


def uniform(seed: int, sequence: int, position: int) -> float:
    """Return a random number in [0, 1) that depends on these three alone: the first one of their Philox."""
    philox = np.random.Philox(counter=[position, 0, 0, 0], key=[seed, sequence])
    return float(np.random.Generator(philox).random())
