"""Bound the blanks in a row of JSON: models in few bits write them for ever where a form lets them.

JSON lets blanks stand between any two of its words. So where a row is full, something else may always come.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import GrammarError
from pyquant.generation.grammar.engine import Compiled, State

MOST_BLANKS = 64  # in a row; deeper than people indent
BLANKS = b" \t\n\r"


@dataclass(frozen=True)
class Row:
    """The end of a JSON text: blanks in a row, and whether a string is open, or an escape in it."""

    n_blanks: int = 0
    in_string: bool = False
    escapes: bool = False

    def after(self, piece: bytes) -> Row:
        """Return the row behind more bytes; at most one more than there may be."""
        n_blanks, in_string, escapes = self.n_blanks, self.in_string, self.escapes
        for byte in piece:
            if in_string:
                in_string = escapes or byte != ord('"')
                escapes = not escapes and byte == ord("\\")
            elif byte in BLANKS:
                n_blanks = min(n_blanks + 1, MOST_BLANKS + 1)
            else:
                n_blanks, in_string = 0, byte == ord('"')
        return replace(self, n_blanks=n_blanks, in_string=in_string, escapes=escapes)


class BoundedBlanks(Compiled):
    """A grammar of JSON texts with at most MOST_BLANKS blanks in a row outside of strings.

    pieces: the bytes of each token.
    """

    def __init__(self, compiled: Compiled, pieces: tuple[bytes, ...]) -> None:
        self._compiled, self.pieces = compiled, pieces
        self.n_words = compiled.n_words
        self.leading = np.array([len(piece) - len(piece.lstrip(BLANKS)) for piece in pieces])
        self.fitting = lru_cache(MOST_BLANKS + 2)(self._fitting)

    def start(self) -> BoundedState:
        return BoundedState(self, self._compiled.start(), [Row()])

    def _fitting(self, n_blanks: int) -> NDArray[np.int32]:
        """(n_words,) int32: bits of the tokens that may come behind a row of blanks."""
        bits = np.ones(32 * self.n_words, bool)
        # A token that ends a row is free to come, behind one whose own row is too long, too.
        bits[: len(self.pieces)] = (self.leading == 0) | (n_blanks + self.leading <= MOST_BLANKS)
        return np.packbits(bits, bitorder="little").view(np.int32)


class BoundedState(State):
    """A place in a text; see `pyquant.generation.grammar.engine.State`."""

    def __init__(self, grammar: BoundedBlanks, state: State, rows: list[Row]) -> None:
        self._grammar, self._state, self._rows = grammar, state, rows

    def mask(self, words: NDArray[np.int32]) -> None:
        self._state.mask(words)
        if not self._rows[-1].in_string:
            words &= self._grammar.fitting(self._rows[-1].n_blanks)

    def allows(self, token: int) -> bool:
        return self._fits(token) and self._state.allows(token)

    def advance(self, token: int) -> None:
        if not self._fits(token):
            raise GrammarError(f"token {token} may not come here: it makes more than {MOST_BLANKS} blanks")
        self._state.advance(token)
        self._rows.append(self._rows[-1].after(self._grammar.pieces[token]))

    def roll_back(self, n_tokens: int) -> None:
        self._state.roll_back(n_tokens)
        del self._rows[len(self._rows) - n_tokens :]

    def copy(self) -> BoundedState:
        return BoundedState(self._grammar, self._state.copy(), list(self._rows))

    @property
    def may_end(self) -> bool:
        return self._state.may_end

    @property
    def must_end(self) -> bool:
        return self._state.must_end

    def _fits(self, token: int) -> bool:
        row, leading = self._rows[-1], int(self._grammar.leading[token])
        return row.in_string or leading == 0 or row.n_blanks + leading <= MOST_BLANKS
