"""The lexer: one deterministic automaton over bytes for all terminals, by longest match.

A terminal goes on as long as any terminal can. Of several that end at the same byte, the first in the order
of their list comes. The lexer never goes back: a text that leaves a terminal unfinished is refused, even
where a shorter one had ended before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import GrammarError
from pyquant.generation.grammar.lr.regex_automaton import RegexAutomaton

NONE = -1  # no state follows, or no terminal ends
IGNORED = -2  # a terminal ends that the parser never sees
MOST_STATES = 10_000
MOST_TOGETHER = 2_000_000  # states of the terminals' expressions, in all states of the lexer


@dataclass(frozen=True, eq=False)
class Lexer:
    """States; 0 is between two terminals.

    Attributes
    ----------
    next : (n_states, 256) int32
        The state after each byte, or NONE.
    ends : (n_states,) int32
        The number of the terminal that may end in each state, NONE or IGNORED.
    """

    next: NDArray[np.int32]
    ends: NDArray[np.int32]


def make_lexer(automaton: RegexAutomaton, names: list[str], numbers: list[int]) -> Lexer:
    """Make a lexer of terminals; of several that end at the same byte, the first comes.

    Names are for messages; numbers are those of the lexer, IGNORED for what the parser never sees.

    Raises
    ------
    GrammarError
        A terminal matches the empty text, or none that another one does not match first; or there would be
        too many states.
    """
    next_states, winners = _determine(automaton)
    if winners[0] != NONE:
        raise GrammarError(f"terminal {names[winners[0]]} matches the empty text")
    next_states, winners = _without_dead_ends(next_states, winners)
    for terminal in sorted(set(range(len(names))) - set(winners.tolist())):
        raise GrammarError(
            f"terminal {names[terminal]} never comes: it matches nothing, or others match all its texts first"
        )
    next_states, winners = _minimize(next_states, winners)
    ends = np.where(winners == NONE, NONE, np.array(numbers, np.int32)[winners])
    return Lexer(next_states, ends.astype(np.int32))


def _determine(automaton: RegexAutomaton) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Make states of the sets of states that can hold at once; with the terminal that wins in each."""
    cuts = sorted(
        {0, 256} | {cut for edges in automaton.edges for a, b, _ in edges for cut in (a, b + 1)}
    )  # bytes between two cuts do the same everywhere
    place = {cut: i for i, cut in enumerate(cuts)}
    end_of = {state: terminal for terminal, state in enumerate(automaton.ends)}

    first = _closure(automaton, automaton.begins)
    numbers, todo = {first: 0}, [first]
    rows, winners, together = [], [], 0
    for states in todo:
        together += len(states)
        if len(todo) > MOST_STATES or together > MOST_TOGETHER:
            raise GrammarError(
                "terminals are too large: the lexer would have to remember too much, as in /(a|b)*a(a|b){20}/"
            )
        ended = sorted(end_of[state] for state in states if state in end_of)
        winners.append(ended[0] if ended else NONE)
        over = automaton.shortest.intersection(ended)
        following: list[set[int]] = [set() for _ in cuts[1:]]
        for state in states:
            if automaton.terminal[state] not in over:
                for low, high, target in automaton.edges[state]:
                    for i in range(place[low], place[high + 1]):
                        following[i].add(target)
        row = []
        closures: dict[frozenset[int], int] = {}
        for targets in map(frozenset, following):
            if targets not in closures:
                closed = _closure(automaton, targets)
                if closed and closed not in numbers:
                    numbers[closed] = len(todo)
                    todo.append(closed)
                closures[targets] = numbers[closed] if closed else NONE
            row.append(closures[targets])
        rows.append(row)
    widths = np.diff(cuts)
    return np.repeat(np.array(rows, np.int32), widths, axis=1), np.array(winners, np.int32)


def _closure(automaton: RegexAutomaton, states: object) -> frozenset[int]:
    found: set[int] = set()
    todo = list(states)  # type: ignore[call-overload]
    while todo:
        state = todo.pop()
        if state not in found:
            found.add(state)
            todo += automaton.free[state]
    return frozenset(found)


def _without_dead_ends(
    next_states: NDArray[np.int32], winners: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Lead nowhere what cannot become a terminal any more."""
    alive = np.append(_bytes_to_an_end(next_states, winners) != NONE, False)  # the last is NONE's
    return np.where(alive[next_states], next_states, NONE).astype(np.int32), winners


def _neighbors(next_states: NDArray[np.int32]) -> tuple[list[set[int]], list[list[int]]]:
    """List by state those that may follow, and those that it may follow."""
    following = [set(row) - {NONE} for row in next_states.tolist()]
    before: list[list[int]] = [[] for _ in following]
    for state, states in enumerate(following):
        for each in states:
            before[each].append(state)
    return following, before


def _bytes_to_an_end(next_states: NDArray[np.int32], winners: NDArray[np.int32]) -> NDArray[np.int32]:
    """(n_states,) int32: the fewest bytes after which a terminal may end; NONE: none does."""
    _, before = _neighbors(next_states)
    distances = np.where(winners == NONE, NONE, 0).astype(np.int32)
    todo = np.flatnonzero(winners != NONE).tolist()
    for state in todo:
        for previous in before[state]:
            if distances[previous] == NONE:
                distances[previous] = distances[state] + 1
                todo.append(previous)
    return distances


def _bytes_to_the_last_end(next_states: NDArray[np.int32]) -> NDArray[np.int32]:
    """(n_states,) int32: the most bytes that may follow, of states that all may end; NONE: without bound."""
    following, before = _neighbors(next_states)
    left = [len(states) for states in following]
    distances = np.full(len(following), NONE, np.int32)
    todo = [state for state, n in enumerate(left) if n == 0]
    for state in todo:  # those whose followers are all known
        distances[state] = max((distances[each] + 1 for each in following[state]), default=0)
        for previous in before[state]:
            left[previous] -= 1
            if left[previous] == 0:
                todo.append(previous)
    return distances


def _minimize(
    next_states: NDArray[np.int32], winners: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Join the states that no text tells apart (Moore's algorithm), in the order of the first of each.

    States begin in groups by how many bytes the nearest end of a terminal is away, and the farthest: else
    each round would tell apart one state of a long text, or of a bounded repetition.
    """
    columns = np.unique(next_states, axis=1)
    apart = np.column_stack([winners, _bytes_to_an_end(columns, winners), _bytes_to_the_last_end(columns)])
    group = np.unique(apart, axis=0, return_inverse=True)[1].reshape(-1)
    while True:
        rows = np.column_stack([group, np.append(group, NONE)[columns]])
        _, firsts, refined = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        if len(firsts) == group.max() + 1:
            break
        group = refined.reshape(-1)
    order = np.argsort(firsts)
    number = np.empty(len(order) + 1, np.int32)
    number[order] = np.arange(len(order))
    number[-1] = NONE
    firsts = firsts[order]
    groups = np.append(refined.reshape(-1), len(order))
    return number[groups[next_states[firsts]]].astype(np.int32), winners[firsts]
