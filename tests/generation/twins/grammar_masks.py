"""Numpy twin of csrc/generation/grammar: which tokens a grammar allows, found by feeding each its bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyquant.generation.grammar.lr.lark_tables import Tables
from pyquant.generation.grammar.lr.lexer import IGNORED, NONE

Stack = tuple[int, ...]


@dataclass(frozen=True)
class Place:
    """A place in a text.

    Attributes
    ----------
    tables : Tables
        Of the grammar.
    stacks : frozenset of tuple of int
        States of the parser, in all ways in which the text can be read.
    lexer : int
        State of the lexer.
    """

    tables: Tables
    stacks: frozenset[Stack]
    lexer: int = 0

    @classmethod
    def start(cls, tables: Tables) -> Place:
        """Return the place before the first byte."""
        return cls(tables, frozenset([(tables.start,)]))

    def after(self, text: bytes) -> Place | None:
        """Return the place after some bytes; None where no text of the grammar goes on so."""
        place = self
        next_states = self.tables.lexer.next
        for byte in text:
            state = int(next_states[place.lexer, byte])
            if state == NONE:
                stacks = place._stacks_after_terminal()
                state = int(next_states[0, byte])
                if not stacks or state == NONE:
                    return None
                place = Place(self.tables, stacks, state)
            else:
                place = Place(self.tables, place.stacks, state)
        return place if place.lexer == 0 or place._goes_on() else None

    @property
    def may_end(self) -> bool:
        """Say whether the text may end here."""
        stacks = self.stacks if self.lexer == 0 else self._stacks_after_terminal()
        return bool(_shift(self.tables, stacks, len(self.tables.terminals) - 1))

    def _stacks_after_terminal(self) -> frozenset[Stack]:
        """Return the stacks once the terminal has ended that the lexer is in; none where it cannot end."""
        terminal = int(self.tables.lexer.ends[self.lexer])
        if terminal == NONE:
            return frozenset()
        return self.stacks if terminal == IGNORED else _shift(self.tables, self.stacks, terminal)

    def _goes_on(self) -> bool:
        """Return whether some bytes make a terminal of what has begun that the parser takes."""
        lexer = self.tables.lexer
        seen, todo = {self.lexer}, [self.lexer]
        for state in todo:
            terminal = int(lexer.ends[state])
            if terminal == IGNORED or (terminal != NONE and _shift(self.tables, self.stacks, terminal)):
                return True
            more = set(lexer.next[state].tolist()) - {NONE} - seen
            seen |= more
            todo += more
        return False


def _shift(tables: Tables, stacks: frozenset[Stack], terminal: int) -> frozenset[Stack]:
    """Return the parser's stacks after a terminal; none where it may not come."""
    seen, todo, shifted = set(stacks), list(stacks), set()
    for stack in todo:
        for action in _actions(tables, stack[-1], terminal):
            if action > 0:
                shifted.add((*stack, action - 1))
                continue
            rule = -action - 1
            below = stack[: len(stack) - int(tables.lengths[rule])]
            reduced = (*below, int(tables.gotos[below[-1], tables.origins[rule]]))
            if reduced not in seen:
                seen.add(reduced)
                todo.append(reduced)
    return frozenset(shifted)


def _actions(tables: Tables, state: int, terminal: int) -> list[int]:
    """Return all that a parser may do in a state before a terminal."""
    first = int(tables.actions[state, terminal])
    others = tables.more[(tables.more[:, 0] == state) & (tables.more[:, 1] == terminal), 2]
    return [first, *others.tolist()] if first else []


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
