"""Grammars that begin behind a trigger: text first, and behind a certain text the form."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import ConfigError, GrammarError
from pyquant.generation.grammar.engine import Compiled, State


class Triggered(Compiled):
    """A grammar that holds from behind the first place of a text on; before it every token may come.

    A token that has the trigger's end and goes on may not come, so that the form begins with a token.

    Parameters
    ----------
    compiled
        The grammar.
    trigger
        At least one byte.
    pieces
        The bytes of each token; those without bytes come before the trigger only if they end a text.
    ends
        Tokens that end a text.

    Raises
    ------
    ConfigError
        The trigger is empty.
    """

    def __init__(
        self, compiled: Compiled, trigger: bytes, pieces: tuple[bytes, ...], ends: NDArray[np.int32]
    ) -> None:
        if not trigger:
            raise ConfigError("trigger: is empty; leave it out where the grammar begins the text")
        self.compiled, self.trigger, self.pieces = compiled, trigger, pieces
        self.n_words = compiled.n_words
        self._ends = ends
        self.free = lru_cache(len(trigger))(self._free)

    def start(self) -> TriggeredState:
        return TriggeredState(self, [0], None, 0)

    def matched(self, n_matched: int, piece: bytes) -> int:
        """Return how many of the trigger's bytes a text ends with, behind more bytes; all: it is there."""
        text = self.trigger[:n_matched] + piece
        if self.trigger in text:
            return len(self.trigger)
        longest = min(len(text), len(self.trigger) - 1)
        return next((n for n in range(longest, 0, -1) if text.endswith(self.trigger[:n])), 0)

    def _free(self, n_matched: int) -> NDArray[np.bool_]:
        """(32 n_words,) bool: tokens that may come where so many of the trigger's bytes end the text."""
        allowed = np.zeros(32 * self.n_words, bool)
        allowed[self._ends] = True
        before = self.trigger[:n_matched]
        for token, piece in enumerate(self.pieces):
            place = (before + piece).find(self.trigger)
            allowed[token] |= bool(piece) and place in (-1, n_matched + len(piece) - len(self.trigger))
        return allowed


class TriggeredState(State):
    """A place in a text; see `pyquant.generation.grammar.engine.State`.

    matched: before each token of the free text, and behind it, how many of the trigger's bytes end it.
    """

    def __init__(self, grammar: Triggered, matched: list[int], inner: State | None, n_inner: int) -> None:
        self._grammar, self._matched, self._inner, self._n_inner = grammar, matched, inner, n_inner

    def mask(self, words: NDArray[np.int32]) -> None:
        if self._inner is not None:
            self._inner.mask(words)
        else:
            free = self._grammar.free(self._matched[-1])
            words[:] = np.packbits(free, bitorder="little").view(np.int32)

    def allows(self, token: int) -> bool:
        if self._inner is not None:
            return self._inner.allows(token)
        return bool(self._grammar.free(self._matched[-1])[token])

    def advance(self, token: int) -> None:
        if self._inner is not None:
            self._inner.advance(token)
            self._n_inner += 1
            return
        if not self.allows(token):
            raise GrammarError(f"token {token} may not come here: it goes on behind the trigger")
        grammar = self._grammar
        self._matched.append(grammar.matched(self._matched[-1], grammar.pieces[token]))
        if self._matched[-1] == len(grammar.trigger):
            self._inner, self._n_inner = grammar.compiled.start(), 0

    def roll_back(self, n_tokens: int) -> None:
        n_of_form = min(n_tokens, self._n_inner)
        if self._inner is not None and n_of_form:
            self._inner.roll_back(n_of_form)
            self._n_inner -= n_of_form
        if n_tokens > n_of_form:
            self._inner = None
            del self._matched[len(self._matched) - (n_tokens - n_of_form) :]

    def copy(self) -> TriggeredState:
        inner = self._inner.copy() if self._inner is not None else None
        return TriggeredState(self._grammar, list(self._matched), inner, self._n_inner)

    @property
    def may_end(self) -> bool:
        return self._inner is None or self._inner.may_end

    @property
    def must_end(self) -> bool:
        return self._inner is not None and self._inner.must_end
