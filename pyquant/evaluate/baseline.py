"""A base model that runs over a text once, however many models are compared with it.

One context is alive at a time: the base's, whose logits are kept (`KeptLogits`), then that of each model,
which is scored as its logits come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np

from pyquant import _core
from pyquant.errors import ModelFileError
from pyquant.evaluate.kept_logits import KeptLogits
from pyquant.evaluate.kld import Kld, Scores, kld
from pyquant.files.text import AnyText, Text, read_texts
from pyquant.llama.cache_types import F16_CACHE, CacheTypes
from pyquant.llama.chunks import UBATCH, Chunks, cut, forward, make_context
from pyquant.llama.model import Model
from pyquant.models.model_file import AnyModel

# Called with the number of tokens that were scored.
Advance = Callable[[int], None]

# (chunks done, all chunks)
Progress = Callable[[int, int], None]


class Baseline:
    """Keep what a base model says of texts, to compare models with, one after the other; a context manager.

    The base runs once. Its logits, 4 bytes for each scored token and each token of the vocabulary, are kept
    in memory up to 64 MiB or one batch, and beyond in a temporary file. Beside the models there is the memory
    that `memory_of_comparison` of pyquant.evaluate.memory says.

    Parameters
    ----------
    base
        The model, a path or a ModelFile.
    text
        A text, or the path of one; or several.
    n_ctx, n_chunks
        Tokens of a chunk, and how many chunks of each text are used; None: all.
    threads
        None: all cores.
    progress
        Called with the chunks that the base has done, and all of them.

    Attributes
    ----------
    chunks : Chunks
        Of all texts.
    scores : Scores
        What the base said: all KLDs are 0.

    Raises
    ------
    ModelFileError, TextError, ConfigError, RuntimeLibraryError
    OutputError
        The folder for temporary files has no room for the logits.
    """

    def __init__(
        self,
        base: AnyModel,
        text: AnyText | Sequence[AnyText],
        *,
        n_ctx: int = 512,
        n_chunks: int | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        texts = read_texts(text)
        with ExitStack() as stack:
            self._base = stack.enter_context(Model(base))
            self._parts = [(cut(self._base, text, n_ctx=n_ctx, n_chunks=n_chunks), text) for text in texts]
            self.chunks = Chunks(np.concatenate([chunks.tokens for chunks, _ in self._parts]))
            advance = self._advance(progress)
            self._run = stack.enter_context(BaseRun(self._base, self.chunks, threads, advance))
            self.scores = self._run.scores
            self.scores.check(self._base.path, self.chunks.n_scored)
            self._stack = stack.pop_all()

    def kld_of(self, model: AnyModel, *, progress: Progress | None = None) -> Kld:
        """Run a model over the same chunks, and compare it with the base.

        Parameters
        ----------
        model
            A path or a ModelFile.
        progress
            Called with the chunks that are done, and all of them.

        Raises
        ------
        ModelFileError
            Also where its vocabulary, or how it cuts the text into tokens, is not the base's.
        """
        with Model(model) as candidate:
            for chunks, text in self._parts:
                check_tokens(self._base, candidate, chunks, text)
            scores = self._run.score(candidate, self._advance(progress))
        scores.check(candidate.path, self.chunks.n_scored)
        return kld(str(candidate.path), self.scores, scores)

    def _advance(self, progress: Progress | None) -> Advance:
        return in_chunks(progress, self.n_chunks, self.n_chunks * self.chunks.n_scored)

    @property
    def n_chunks(self) -> int:
        """Number of chunks, of all texts."""
        return self.chunks.n_chunks

    def __enter__(self) -> Baseline:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()


class BaseRun:
    """One run of a base over chunks; its logits stay until this context manager is left.

    scores: of the base.
    """

    def __init__(self, base: Model, chunks: Chunks, threads: int | None, advance: Advance) -> None:
        self._chunks, self._threads = chunks, threads
        n = chunks.n_chunks * chunks.n_scored
        self.scores = Scores.of_base(n)
        with ExitStack() as stack:
            self._kept = stack.enter_context(KeptLogits(n, base.n_vocab, n_ctx=chunks.n_ctx))
            with make_context(base, chunks.n_ctx, threads=threads) as context:
                begin = 0
                for piece in forward(context, chunks):
                    self._kept.put(begin, piece.logits)
                    end = begin + len(piece.targets)
                    self.scores.nll[begin:end] = _core.negative_log_likelihood(
                        piece.logits, piece.targets, context.n_threads
                    )
                    begin = end
                    advance(len(piece.targets))
            self._stack = stack.pop_all()

    def score(
        self,
        model: Model,
        advance: Advance,
        *,
        n_chunks: int | None = None,
        n_ubatch: int = UBATCH,
        cache: CacheTypes = F16_CACHE,
    ) -> Scores:
        """Run a model over the first n_chunks of the same chunks, beside what the base said of them."""
        chunks = Chunks(self._chunks.tokens[:n_chunks])
        with make_context(
            model, chunks.n_ctx, threads=self._threads, n_ubatch=n_ubatch, cache=cache
        ) as context:
            parts = ((piece.logits, piece.targets) for piece in forward(context, chunks))
            return self._kept.score(parts, chunks.n_chunks * chunks.n_scored, context.n_threads, advance)

    def __enter__(self) -> BaseRun:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()


def in_chunks(progress: Progress | None, n_chunks: int, n_tokens: int) -> Advance:
    """Turn progress in n_tokens scored tokens, of all models, into progress in n_chunks chunks."""
    done = 0

    def advance(n: int) -> None:
        nonlocal done
        done += n
        if progress:
            progress(n_chunks * done // n_tokens, n_chunks)

    return advance


def check_size(base: Model, model: Model) -> None:
    """Refuse a model whose vocabulary has more or fewer tokens than the base's. Raises ModelFileError."""
    if model.n_vocab != base.n_vocab:
        raise ModelFileError(
            f"{model.path}: {model.n_vocab} tokens in its vocabulary, {base.path} has {base.n_vocab}: "
            f"their probabilities cannot be compared"
        )


def check_tokens(base: Model, model: Model, chunks: Chunks, text: Text) -> None:
    """Refuse a model that would be given other tokens than the base. Raises ModelFileError."""
    check_size(base, model)
    tokens = cut(model, text, n_ctx=chunks.n_ctx, n_chunks=chunks.n_chunks).tokens
    if (
        tokens.shape != chunks.tokens.shape
        or (tokens != chunks.tokens).any()
        or model.vocabulary.bos != base.vocabulary.bos
    ):
        raise ModelFileError(f"{model.path}: its tokenizer cuts the text otherwise than that of {base.path}")
