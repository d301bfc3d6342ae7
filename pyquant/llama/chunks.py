"""Run a model over a text in llama-perplexity's chunks, for whoever scores its logits.

The tokens are cut into chunks of n_ctx; each chunk is a sequence of its own, begun by BOS in place of
its first token where the model has one put there. Only tokens in the second half of a chunk, which
have at least n_ctx / 2 tokens before them, are scored. As many chunks as fit into a batch are computed
together, so results are llama-perplexity's to the last bits of float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyquant import _core, limits
from pyquant.errors import TextError
from pyquant.files.text import Text
from pyquant.llama.cache_types import F16_CACHE, CacheTypes
from pyquant.llama.context import Context
from pyquant.llama.model import Model

BATCH = 2048  # tokens in a call, llama-perplexity's default: it decides which chunks share a batch
UBATCH = 512  # tokens that are computed together, its default too


@dataclass(frozen=True)
class Chunks:
    """A text as the model's tokens, cut into chunks."""

    tokens: NDArray[np.int32]  # (n_chunks, n_ctx)

    @property
    def n_chunks(self) -> int:
        """Number of chunks."""
        return self.tokens.shape[0]

    @property
    def n_ctx(self) -> int:
        """Tokens of a chunk."""
        return self.tokens.shape[1]

    @property
    def n_groups(self) -> int:
        """Number of groups of chunks that are computed together."""
        return -(-self.n_chunks // together(self.n_ctx))

    @property
    def n_scored(self) -> int:
        """Tokens of each chunk that are scored: those at positions n_ctx / 2 + 1 and after."""
        return self.n_ctx - 1 - self.n_ctx // 2

    def given_to(self, model: Model) -> NDArray[np.int32]:
        """Return the tokens that a model is given, as a copy: BOS is first where it has one put there."""
        given = self.tokens.copy()
        if (bos := model.vocabulary.bos) is not None:
            given[:, 0] = bos
        return given


@dataclass(frozen=True)
class Piece:
    """Logits of a model after consecutive tokens of a chunk.

    It is the chunk's whole scored part, unless the chunk is longer than a batch.
    """

    chunk: int
    targets: NDArray[np.int32]  # (n,): the tokens that came
    # (n, n_vocab): row i was given before targets[i]. A view of llama.cpp's buffer, valid until the next
    # piece is asked for.
    logits: NDArray[np.float32]


def cut(model: Model, text: Text, *, n_ctx: int, n_chunks: int | None = None) -> Chunks:
    """Cut a text into chunks of this model's tokens.

    n_chunks: how many chunks are used, if there are as many; None: all.
    Raises ConfigError. TextError: there are too few tokens for one chunk. ModelFileError: the model has no
    vocabulary.
    """
    limits.CTX.check("ctx", n_ctx)
    if n_chunks is not None:
        limits.CHUNKS.check("chunks", n_chunks)
    tokens = model.vocabulary.tokenize(text.data, ends=not text.marked, special=text.marked)
    n_whole = len(tokens) // n_ctx
    if n_whole == 0:
        raise TextError(
            f"{text.path}: too short: {len(tokens)} tokens, a chunk needs {n_ctx}; "
            f"give more text or a smaller context (--ctx)"
        )
    n = min(n_whole, n_chunks or n_whole)
    return Chunks(tokens[: n * n_ctx].reshape(n, n_ctx))


def make_context(
    model: Model,
    n_ctx: int,
    *,
    threads: int | None = None,
    n_ubatch: int = UBATCH,
    cache: CacheTypes = F16_CACHE,
    observer: _core.Collector | _core.ResidualStream | None = None,
) -> Context:
    """Make a context for chunks of n_ctx tokens, of which n_ubatch tokens are computed together.

    Parameters and errors are those of `Model.context`.
    """
    return model.context(
        n_ctx=n_ctx,
        n_seq=together(n_ctx),
        n_batch=BATCH,
        n_ubatch=n_ubatch,
        threads=threads,
        cache=cache,
        observer=observer,
    )


def together(n_ctx: int) -> int:
    """Return how many chunks are computed together."""
    return max(1, BATCH // n_ctx)


def n_scored_together(n_ctx: int) -> int:
    """Return how many tokens of a batch llama.cpp is asked for logits after, at most."""
    return min(BATCH, together(n_ctx) * (n_ctx - n_ctx // 2))


def portions(
    context: Context, chunks: Chunks, group: int
) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
    """Yield what the model is given of the group-th chunks that are computed together, batch by batch.

    Yields tokens: (n_chunks, n) int32. positions: (n,) int64: of these tokens in their chunks.
    """
    n_ctx = chunks.n_ctx
    begin = group * together(n_ctx)
    given = Chunks(chunks.tokens[begin : begin + together(n_ctx)]).given_to(context.model)
    context.clear()
    for start in range(0, n_ctx, context.n_batch):
        positions = np.arange(start, min(start + context.n_batch, n_ctx))
        yield given[:, positions], positions


def forward(context: Context, chunks: Chunks) -> Iterator[Piece]:
    """Run the model over all chunks, and yield what it says of the scored tokens, in order.

    Raises ModelFileError.
    """
    n_ctx, first = chunks.n_ctx, chunks.n_ctx // 2
    for group in range(chunks.n_groups):
        begin = group * together(n_ctx)
        tokens = chunks.tokens[begin : begin + together(n_ctx)]
        for given, positions in portions(context, chunks, group):
            # The last position has no token after it here, but llama-perplexity wants its logits too.
            wanted = positions >= first
            logits = context.decode(given, positions[0], wanted)
            followed = positions[wanted & (positions < n_ctx - 1)]
            if len(followed) == 0:
                continue
            for i in range(len(tokens)):
                yield Piece(begin + i, tokens[i, followed + 1], logits[i, : len(followed)])
