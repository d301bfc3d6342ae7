"""Interface of engines: compile a grammar for a vocabulary, then follow a text token by token."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.generation.grammar.grammar import Grammar


class State(Protocol):
    """Place of a text in a grammar. Tokens that end a text are allowed where the grammar may end."""

    def mask(self, words: NDArray[np.int32]) -> None:
        """Write which tokens may come next. Raises GrammarError where a limit of the engine's is reached.

        Parameters
        ----------
        words : (ceil(n_vocab / 32),) int32
            Bit j % 32 of word j // 32 becomes whether token j may come.
        """

    def allows(self, token: int) -> bool:
        """Return whether a token may come next; quicker than a mask."""

    def advance(self, token: int) -> None:
        """Take a token. Raises GrammarError where it may not come, or the engine gives up."""

    def roll_back(self, n_tokens: int) -> None:
        """Take the last tokens back."""

    def copy(self) -> State:
        """Return a state of its own at the same place."""

    @property
    def may_end(self) -> bool:
        """Say whether the text may end here."""

    @property
    def must_end(self) -> bool:
        """Say whether nothing else can come."""


def kernel_state(state: State) -> _core.GrammarState | None:
    """Return the state that a kernel draws tokens for and takes them in; only engine lr has it."""
    kernel: _core.GrammarState | None = getattr(state, "kernel", None)
    return kernel


class Compiled(Protocol):
    """A grammar, ready for a vocabulary."""

    n_words: int  # of a mask

    def start(self) -> State:
        """Return the state before the first token."""


class Engine(Protocol):
    """Compiles grammars for one vocabulary."""

    def compile(self, grammar: Grammar) -> Compiled:
        """Compile a grammar. Raises GrammarError: where it is none, or this engine does not take it."""


def allowed_tokens(words: NDArray[np.int32], n_tokens: int) -> NDArray[np.bool_]:
    """Return the bits of a mask as (n_tokens,) bool: whether each token may come."""
    return np.unpackbits(words.view(np.uint8), count=n_tokens, bitorder="little").view(np.bool_)
