"""Find out whether terminals can stand beside each other where a grammar puts them so.

Longest match reads on as long as it can. Where a grammar wants two names in a row and nothing can stand
between them, longest match makes one name of them, and a text that comes there has no end. Where every pair
can be written, by a character that the first one cannot take or by something ignored between them, the parser
alone decides what may come.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import GrammarError
from pyquant.generation.grammar.lr.lexer import IGNORED, NONE, Lexer


def check_boundaries(lexer: Lexer, actions: NDArray[np.int32], terminals: tuple[str, ...]) -> None:
    """Check every pair of terminals of a grammar.

    Parameters
    ----------
    lexer
    actions : (n_states, n_terminals) int32
        Of the parser.
    terminals
        Names; the last is the text's end.

    Raises
    ------
    GrammarError
        A pair cannot be written.
    """
    followers = _followers(actions)
    everywhere = followers.any(axis=0) | (actions != 0).any(axis=0)
    ended = _ended_after(lexer)
    following: dict[bytes, NDArray[np.bool_]] = {}
    for state in np.flatnonzero(lexer.ends != NONE).tolist():
        terminal = lexer.ends[state]
        missing = everywhere if terminal == IGNORED else followers[terminal]
        for later in _ends_of_the_same(lexer, state):
            stops = lexer.next[later] == NONE  # bytes that end this terminal
            key = stops.tobytes()
            if key not in following:
                following[key] = _terminals_after(lexer, ended, stops, len(terminals))
            missing = missing & ~following[key]
            if not missing[:-1].any():
                break
        missing = np.flatnonzero(missing[:-1])
        if len(missing):
            name = "what is ignored" if terminal == IGNORED else terminals[terminal]
            raise GrammarError(
                f"after {name} may come {terminals[missing[0]]}, but longest match would read on and never "
                "come to it: let %ignore stand between them, or use --engine llguidance"
            )


def _followers(actions: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which terminals may come after which: (n_terminals, n_terminals) bool."""
    n_terminals = actions.shape[1]
    followers = np.zeros((n_terminals, n_terminals), bool)
    for state, terminal in zip(*np.nonzero(actions > 0)):
        followers[terminal] |= actions[actions[state, terminal] - 1] != 0
    return followers


def _ends_of_the_same(lexer: Lexer, state: int) -> Iterator[int]:
    """Find a state, and all that a longer text of the same terminal can end in."""
    seen, todo = {state}, [state]
    for place in todo:
        if lexer.ends[place] == lexer.ends[state]:
            yield place
        more = set(lexer.next[place].tolist()) - {NONE} - seen
        seen |= more
        todo += more


def _ended_after(lexer: Lexer) -> list[NDArray[np.int64]]:
    """Return for each first byte the states in which a terminal that begins with it may end."""
    by_state: dict[int, NDArray[np.int64]] = {NONE: np.empty(0, np.int64)}
    for first in set(lexer.next[0].tolist()) - {NONE}:
        seen = np.zeros(len(lexer.ends), bool)
        frontier = np.array([first])
        while len(frontier):
            seen[frontier] = True
            frontier = np.unique(lexer.next[frontier])
            frontier = frontier[frontier != NONE]
            frontier = frontier[~seen[frontier]]
        by_state[first] = np.flatnonzero(seen & (lexer.ends != NONE))
    return [by_state[state] for state in lexer.next[0].tolist()]


def _terminals_after(
    lexer: Lexer, ended: list[NDArray[np.int64]], stops: NDArray[np.bool_], n_terminals: int
) -> NDArray[np.bool_]:
    """Return which terminals can be written next, ignored ones between: (n_terminals,) bool."""
    result = np.zeros(n_terminals, bool)
    seen: set[int] = set()
    todo = [stops]
    while todo:
        stops = todo.pop()
        states = {state for byte in np.flatnonzero(stops) for state in ended[byte].tolist()}
        for state in states - seen:
            if lexer.ends[state] == IGNORED:
                todo.append(lexer.next[state] == NONE)
            else:
                result[lexer.ends[state]] = True
        seen |= states
    return result
