"""Numpy twin of csrc/grammar: which tokens a grammar allows, found by feeding each its bytes one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyquant.grammar.lr.lark_tables import Tables
from pyquant.grammar.lr.lexer import IGNORED, NONE


@dataclass(frozen=True)
class Place:
    """A place in a text.

    Attributes
    ----------
    tables : Tables
        Of the grammar.
    stack : tuple of int
        States of the parser.
    lexer : int
        State of the lexer.
    """

    tables: Tables
    stack: tuple[int, ...]
    lexer: int = 0

    @classmethod
    def start(cls, tables: Tables) -> Place:
        """Return the place before the first byte."""
        return cls(tables, (tables.start,))

    def after(self, text: bytes) -> Place | None:
        """Return the place after some bytes; None where no text of the grammar goes on so."""
        place = self
        next_states = self.tables.lexer.next
        for byte in text:
            state = int(next_states[place.lexer, byte])
            if state == NONE:
                stack = place._stack_after_terminal()
                state = int(next_states[0, byte])
                if stack is None or state == NONE:
                    return None
                place = Place(self.tables, stack, state)
            else:
                place = Place(self.tables, place.stack, state)
        return place if place.lexer == 0 or place._goes_on() else None

    @property
    def may_end(self) -> bool:
        """Say whether the text may end here."""
        stack = self.stack if self.lexer == 0 else self._stack_after_terminal()
        return stack is not None and _shift(self.tables, stack, len(self.tables.terminals) - 1) is not None

    def _stack_after_terminal(self) -> tuple[int, ...] | None:
        """Return the stack once the terminal has ended that the lexer is in."""
        terminal = int(self.tables.lexer.ends[self.lexer])
        if terminal == NONE:
            return None
        return self.stack if terminal == IGNORED else _shift(self.tables, self.stack, terminal)

    def _goes_on(self) -> bool:
        """Return whether some bytes make a terminal of what has begun that the parser takes."""
        lexer = self.tables.lexer
        seen, todo = {self.lexer}, [self.lexer]
        for state in todo:
            terminal = int(lexer.ends[state])
            if terminal == IGNORED or (
                terminal != NONE and _shift(self.tables, self.stack, terminal) is not None
            ):
                return True
            more = set(lexer.next[state].tolist()) - {NONE} - seen
            seen |= more
            todo += more
        return False


def _shift(tables: Tables, stack: tuple[int, ...], terminal: int) -> tuple[int, ...] | None:
    """Return the parser's stack after a terminal; None where it may not come."""
    while True:
        action = int(tables.actions[stack[-1], terminal])
        if action > 0:
            return (*stack, action - 1)
        if action == 0:
            return None
        rule = -action - 1
        stack = stack[: len(stack) - int(tables.lengths[rule])]
        stack = (*stack, int(tables.gotos[stack[-1], tables.origins[rule]]))


def allowed(place: Place, pieces: list[bytes], end_tokens: list[int]) -> NDArray[np.bool_]:
    """Return which tokens may come next.

    Parameters
    ----------
    place
    pieces
        The bytes of each token; one without any never comes.
    end_tokens
        Tokens that end a text.

    Returns
    -------
    allowed : (n_vocab,) bool
    """
    result = np.array([bool(piece) and place.after(piece) is not None for piece in pieces])
    if place.may_end:
        result[end_tokens] = True
    return result
