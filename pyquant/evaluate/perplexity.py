"""Perplexity as llama-perplexity defines and computes it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from pyquant import _core
from pyquant.evaluate.kld import Scores
from pyquant.files.text import Text, read_text
from pyquant.llama.chunks import cut, forward, make_context
from pyquant.llama.model import Model, path_of
from pyquant.models.model_file import AnyModel

# (chunks done, all chunks)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PerplexityResult:
    """Perplexity of a model on a text.

    Attributes
    ----------
    model, text : str
        Their paths.
    text_sha256 : str
        Hash of the text less a newline at its end.
    ppl : float
        exp of the mean negative log-likelihood of the scored tokens.
    error : float
        One standard error of it, llama-perplexity's "+/-".
    n_tokens, n_chunks, n_ctx : int
        Scored tokens, chunks, and tokens of a chunk.
    seconds : float
        Time of running and scoring, without loading.
    tokens_per_second : float
        Tokens that the model was given, in that time.
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
        """Return it as `pyquant perplexity --json` prints each of its `results`."""
        return asdict(self)


def measure_perplexity(
    model: AnyModel,
    text: Text | str | os.PathLike[str],
    *,
    n_ctx: int = 512,
    n_chunks: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> PerplexityResult:
    """Measure the perplexity of a model on a text.

    Parameters
    ----------
    model
        A path or a ModelFile.
    text
        The text, or the path of one.
    n_ctx, n_chunks
        Tokens of a chunk, and how many chunks of the text are used; None: all.
    threads
        None: all cores.
    progress
        Called with chunks done and all chunks.

    Raises
    ------
    ModelFileError, TextError, ConfigError, RuntimeLibraryError
    """
    text = read_text(text)
    path = path_of(model)
    with Model(model) as llama:
        chunks = cut(llama, text, n_ctx=n_ctx, n_chunks=n_chunks)
        with make_context(llama, n_ctx, threads=threads) as context:
            begin = time.perf_counter()
            scores = Scores.of_base(chunks.n_chunks * chunks.n_scored)
            n_done = 0
            for piece in forward(context, chunks):
                n = len(piece.targets)
                scores.nll[n_done : n_done + n] = _core.negative_log_likelihood(
                    piece.logits, piece.targets, context.n_threads
                )
                n_done += n
                if progress:
                    progress(piece.chunk + 1, chunks.n_chunks)
            seconds = time.perf_counter() - begin
    scores.check(path, chunks.n_scored)
    ppl, error = scores.perplexity()
    return PerplexityResult(
        model=str(path),
        text=str(text.path),
        text_sha256=text.sha256,
        ppl=ppl,
        error=error,
        n_tokens=len(scores.nll),
        n_chunks=chunks.n_chunks,
        n_ctx=n_ctx,
        seconds=seconds,
        tokens_per_second=chunks.tokens.size / seconds,
    )
