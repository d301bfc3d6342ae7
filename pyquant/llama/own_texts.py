"""Texts that a model writes itself: sequences of so many tokens, which go on where the model would end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.llama.check_logits import check_logits
from pyquant.llama.model import Model

TOGETHER = 32  # sequences that are continued together: each keeps its keys and values


def write_tokens(
    model: Model,
    n_sequences: int,
    n_tokens: int,
    begin: Callable[[int], list[int]],
    *,
    seed: int = 0,
    threads: int | None = None,
) -> NDArray[np.int32]:
    """Let a model write sequences of tokens, TOGETHER at a time.

    Parameters
    ----------
    n_sequences
        How many sequences.
    n_tokens, begin, seed, threads
        As for `write_together`.

    Returns
    -------
    (n_sequences, n_tokens) int32

    Raises
    ------
    ModelFileError
    """
    written = np.empty((n_sequences, n_tokens), np.int32)
    for first in range(0, n_sequences, TOGETHER):
        part = written[first : first + TOGETHER]
        part[:] = write_together(model, len(part), n_tokens, begin, seed=seed, first=first, threads=threads)
    return written


def write_together(
    model: Model,
    n_sequences: int,
    n_tokens: int,
    begin: Callable[[int], list[int]],
    *,
    seed: int,
    first: int,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
    observer: _core.Bf16Pass | None = None,
) -> NDArray[np.int32]:
    """Let a model write sequences of tokens, all of them token by token.

    Tokens are drawn from all ordinary ones and from those that end a text, with the probabilities that the
    model gives them.

    Parameters
    ----------
    n_sequences, n_tokens
        How many sequences, TOGETHER at most, and the tokens of each.
    begin
        Called with 0 at the beginning of a sequence, and wherever the model ends with how often it has
        ended; returns the tokens that stand there, in place of the end: one at least.
    seed, first
        What the random numbers depend on: the second is the number of the first sequence.
    progress
        Called with the tokens written.
    observer
        Sees the nodes of the model's graph.

    Returns
    -------
    (n_sequences, n_tokens) int32

    Raises
    ------
    ModelFileError
    """
    written = np.empty((n_sequences, n_tokens), np.int32)
    vocabulary = model.vocabulary
    ends = frozenset(vocabulary.end_tokens().tolist())
    allowed = np.zeros(vocabulary.n_tokens, bool)
    allowed[[*vocabulary.ordinary_tokens(), *ends]] = True
    given = [deque(begin(0)) for _ in written]  # tokens that come next, whatever the model says
    n_ends = [0] * len(written)
    drawn = [0] * len(written)
    with model.context(
        n_ctx=n_tokens, n_seq=n_sequences, n_batch=n_sequences, n_ubatch=n_sequences, threads=threads,
        observer=observer,
    ) as context:  # fmt: skip
        for position in range(n_tokens):
            for i, token in enumerate(drawn):
                if not given[i] and token in ends:
                    n_ends[i] += 1
                    given[i].extend(begin(n_ends[i]))
                written[i, position] = given[i].popleft() if given[i] else token
            logits = context.decode(written[:, position : position + 1], position, np.ones(1, bool))[:, 0]
            check_logits(model.path, logits, "what it writes")
            drawn = [draw(row, allowed, uniform(seed, first + i, position)) for i, row in enumerate(logits)]
            if progress:
                progress((position + 1) * n_sequences)
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
