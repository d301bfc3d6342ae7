"""Sequences of tokens that a model continues, each from where it is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import ConfigError
from pyquant.llama.model import Model

BATCH = 2048  # tokens of a prompt that are given at a time


class Session:
    """Sequences with positions of their own, in one context; a context manager.

    Parameters
    ----------
    model
    n_sequences
        Each has room of its own.
    n_ctx
        Tokens that a sequence has room for.
    n_views
        Of a single sequence, as `Model.context` has them: one, so that others can take what it has read.
    threads
        None: all cores.

    Attributes
    ----------
    model, context, n_ctx
    lengths : (n_sequences,) int64
        Tokens that each sequence has.

    Raises
    ------
    ConfigError, ModelFileError
        Here and below: the model cannot be run.
    """

    def __init__(
        self, model: Model, n_sequences: int, n_ctx: int, *, n_views: int = 0, threads: int | None = None
    ) -> None:
        self.model = model
        self.n_ctx = n_ctx
        self.lengths = np.zeros(n_sequences, np.int64)
        self._tokens: list[list[int]] = [[] for _ in range(n_sequences)]  # to read some of them again
        self.context = model.context(
            n_ctx=n_ctx, n_seq=n_sequences, n_views=n_views, n_batch=max(BATCH, n_sequences), threads=threads
        )

    def extend(self, sequence: int, tokens: NDArray[np.int32]) -> NDArray[np.float32]:
        """Continue a sequence by several tokens.

        Parameters
        ----------
        sequence
        tokens : (n,) int32
            At least one.

        Returns
        -------
        logits : (n_vocab,) float32
            After the last one; a copy.

        Raises
        ------
        ConfigError
            There is no room for so many.
        """
        begin = int(self.lengths[sequence])
        if begin + len(tokens) > self.n_ctx:
            raise ConfigError(f"{begin + len(tokens)} tokens, where a sequence has room for {self.n_ctx}")
        portion = self.context.n_batch
        for start in range(0, len(tokens), portion):
            part = tokens[start : start + portion]
            wanted = np.zeros(len(part), bool)
            wanted[-1] = start + portion >= len(tokens)
            positions = np.arange(begin + start, begin + start + len(part))
            logits = self.context.run(part, positions, np.full(len(part), sequence), wanted)
        self._took(sequence, tokens)
        return logits[0].copy()

    def step(self, sequences: NDArray[np.int64], tokens: NDArray[np.int32]) -> NDArray[np.float32]:
        """Continue each of several sequences by a token.

        Parameters
        ----------
        sequences : (n,) int64
            All different.
        tokens : (n,) int32

        Returns
        -------
        logits : (n, n_vocab) float32
            A view of llama.cpp's buffer, valid until the next call.
        """
        logits = self.context.run(tokens, self.lengths[sequences], sequences, np.ones(len(tokens), bool))
        for sequence, token in zip(sequences.tolist(), tokens.tolist()):
            self._tokens[sequence].append(token)
        self.lengths[sequences] += 1
        return logits

    def follow(self, sequence: int, tokens: NDArray[np.int32]) -> NDArray[np.float32]:
        """Continue a sequence by at least one token and at most BATCH, to know what follows each.

        Returns
        -------
        logits : (n, n_vocab) float32
            After each; a view of llama.cpp's buffer, valid until the next call.
        """
        n, begin = len(tokens), int(self.lengths[sequence])
        positions, wanted = np.arange(begin, begin + n), np.ones(n, bool)
        logits = self.context.run(tokens, positions, np.full(n, sequence), wanted)
        self._took(sequence, tokens)
        return logits

    def copy(self, source: int, target: int) -> None:
        """Let a sequence have what another one has: its tokens' keys and values are copied."""
        self.context.copy(source, target)
        self.lengths[target] = self.lengths[source]
        self._tokens[target] = self._tokens[source].copy()

    def take(self, giver: Session, begin: int, end: int) -> None:
        """Let the first sequence have what a session of another model has read at positions begin..end-1.

        Raises ModelFileError where their keys and values have other shapes.
        """
        self.roll_back(0, begin)
        self.context.take(giver.context, begin, end)
        self._tokens[0][begin:] = giver._tokens[0][begin:end]
        self.lengths[0] = end

    def roll_back(self, sequence: int, length: int) -> None:
        """Let a sequence have only its first `length` tokens.

        They are read again where the model cannot go back to them: one with a state, and one with a sliding
        window that has moved on. Raises ModelFileError.
        """
        if length >= self.lengths[sequence]:
            return
        if self.context.cut(sequence, length):
            self.lengths[sequence] = length
            del self._tokens[sequence][length:]
            return
        again = np.array(self._tokens[sequence][:length], np.int32)
        self.roll_back(sequence, 0)
        self.extend(sequence, again)

    def _took(self, sequence: int, tokens: NDArray[np.int32]) -> None:
        self._tokens[sequence] += tokens.tolist()
        self.lengths[sequence] += len(tokens)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.__exit__(None, None, None)
