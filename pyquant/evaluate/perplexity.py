"""Perplexity as llama-perplexity defines and computes it."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pyquant import _core
from pyquant.errors import ModelFileError
from pyquant.files.text import Text, read_text
from pyquant.llama.chunks import cut, forward, make_context
from pyquant.llama.model import Model

# (chunks done, all chunks)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PerplexityResult:
    """Perplexity of a model on a text.

    ppl: exp of the mean negative log-likelihood of n_tokens tokens, the scored ones of n_chunks
    chunks of n_ctx tokens. error: one standard error of it, llama-perplexity's "+/-".
    text_sha256: of the text less a newline at its end. tokens_per_second: tokens that the model was
    given, in `seconds` of running and scoring, loading excluded.
    """

    model: str
    text: str
    text_sha256: str
    ppl: float
    error: float
    n_tokens: int
    n_chunks: int
    n_ctx: int
    seconds: float
    tokens_per_second: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure_perplexity(
    model_path: str | os.PathLike[str],
    text: Text | str | os.PathLike[str],
    *,
    n_ctx: int = 512,
    n_chunks: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> PerplexityResult:
    """Perplexity on a text, or the path of one, cut into chunks of n_ctx tokens.

    n_chunks: only the first ones. Raises ModelFileError, TextError, ConfigError and
    RuntimeLibraryError.
    """
    text = text if isinstance(text, Text) else read_text(text)
    with Model(model_path) as model:
        chunks = cut(model, text, n_ctx=n_ctx, n_chunks=n_chunks)
        with make_context(model, n_ctx, threads=threads) as context:
            begin = time.perf_counter()
            nll = np.empty((chunks.n_chunks, chunks.n_scored))
            at = 0
            for piece in forward(context, chunks):
                n = len(piece.targets)
                nll.flat[at : at + n] = _core.negative_log_likelihood(
                    piece.logits, piece.targets, context.n_threads
                )
                at += n
                if progress:
                    progress(piece.chunk + 1, chunks.n_chunks)
            seconds = time.perf_counter() - begin
    mean, count = nll.mean(), nll.size
    if not np.isfinite(nll).all():
        chunk = int(np.argmin(np.isfinite(nll).all(axis=1)))
        raise ModelFileError(f"{model_path}: not finite logits in chunk {chunk}: the model is broken")
    ppl = float(np.exp(mean))
    # llama-perplexity: the standard error of the mean, carried through exp.
    error = ppl * math.sqrt(nll.var() / (count - 1))
    return PerplexityResult(
        model=str(model_path),
        text=str(text.path),
        text_sha256=text.sha256,
        ppl=ppl,
        error=error,
        n_tokens=count,
        n_chunks=chunks.n_chunks,
        n_ctx=n_ctx,
        seconds=seconds,
        tokens_per_second=chunks.tokens.size / seconds,
    )
