"""A multiple-choice question, and which tokens of its answers are scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import TextError
from pyquant.llama.chunks import BATCH
from pyquant.llama.vocabulary import Vocabulary

TRAILING = 3  # tokens; with more than so many behind where two sentences part, their words are not scored


@dataclass(frozen=True)
class Question:
    """A question with two answers or more.

    Attributes
    ----------
    place : str
        File and line, or file and number, for messages.
    texts : tuple of bytes
        For each answer the whole text that the model is given.
    right : frozenset of int
        Indices of the answers that count as right.
    until : tuple of bytes or None
        Winogrande: each text up to and with the word that was put in, as what follows it is scored.
    """

    place: str
    texts: tuple[bytes, ...]
    right: frozenset[int]
    until: tuple[bytes, ...] | None = None


@dataclass(frozen=True)
class Answer:
    """An answer in tokens, of which those at positions first..end-1 are scored.

    tokens: (n,) int32. source: answer and position whose logits predict the token at `first`.
    """

    tokens: NDArray[np.int32]
    first: int
    end: int
    source: tuple[int, int]


@dataclass(frozen=True)
class Tokenized:
    """A question in tokens. shared: how many tokens all answers begin with."""

    question: Question
    answers: list[Answer]
    shared: int

    @property
    def n_tokens(self) -> int:
        """Tokens that a model reads: the shared ones once."""
        return self.shared + sum(len(answer.tokens) - self.shared for answer in self.answers)


def tokenized(question: Question, vocabulary: Vocabulary) -> Tokenized:
    """Cut a question into tokens. Raises TextError: a text has too few or too many."""
    tokens = [vocabulary.tokenize(text) for text in question.texts]
    shared = _n_shared(tokens)
    if question.until is None:
        answers = [
            Answer(own, max(shared, 1), len(own), (i, max(shared, 1) - 1)) for i, own in enumerate(tokens)
        ]
    else:
        answers = _filled_in(tokens, [len(vocabulary.tokenize(text)) for text in question.until], shared)
    if any(answer.first >= answer.end for answer in answers):
        raise TextError(f"{question.place}: an answer has no token that could be scored")
    made = Tokenized(question, answers, shared)
    if made.n_tokens > BATCH:
        raise TextError(
            f"{question.place}: takes {made.n_tokens:,} tokens; a question has at most {BATCH:,}, as in "
            f"llama-perplexity"
        )
    return made


def _n_shared(tokens: Sequence[NDArray[np.int32]]) -> int:
    """Count the tokens that all begin with, but leave each at least its last one."""
    n = max(0, min(map(len, tokens)) - 1)
    same = np.all([own[:n] == tokens[0][:n] for own in tokens], axis=0)
    return int(np.argmin(same)) if not same.all() else n


def _filled_in(tokens: Sequence[NDArray[np.int32]], until: Sequence[int], shared: int) -> list[Answer]:
    """Say what Winogrande scores: what follows the word, without the last token where there are more.

    Where few tokens follow, the word is scored too. llama-perplexity predicts the second word's first token
    then by the logits behind the first sentence, not by those behind what both begin with; its published
    scores, and ours, have that in them.
    """
    without_words = all(len(own) - shared > TRAILING for own in tokens)
    answers = []
    for i, own in enumerate(tokens):
        first = max(until[i] if without_words else shared, shared, 1)
        if first >= len(own):
            first = max(shared, 1)
        end = len(own) - (1 if len(own) - first > 1 else 0)
        source = (0, len(tokens[0]) - 1) if i == 1 and first == shared else (i, first - 1)
        answers.append(Answer(own, first, end, source))
    return answers
