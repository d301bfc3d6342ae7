"""Sizes of the residual stream: what a model's norms divide, relative to which errors in it count."""

from __future__ import annotations

from pyquant import _core
from pyquant.llama.chunks import Chunks, make_context, portions
from pyquant.llama.model import Model

EVERY = 16  # of so many tokens logits are computed, as nobody reads them


def stream_lengths(model: Model, chunks: Chunks, threads: int | None) -> dict[str, float]:
    """Run a model over the first chunks that are computed together.

    Returns: by the name of each matrix that multiplies what a norm made of the residual stream: the mean over
    tokens of the logarithm of its squared length.
    Raises ModelFileError: llama.cpp cannot run the model.
    """
    observer = _core.ResidualStream()
    with make_context(model, chunks.n_ctx, threads=threads, observer=observer) as context:
        for tokens, positions in portions(context, chunks, 0):
            context.decode(tokens, positions[0], positions % EVERY == EVERY - 1)
    return observer.logarithms
