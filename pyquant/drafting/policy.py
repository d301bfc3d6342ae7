"""Interface of policies: what decides, before each token, whether a draft goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from pyquant.limits import Limit

State = TypeVar("State")


class Decision(Enum):
    """Answer of a policy: draft another token, stop, or stop without the last drafted token."""

    MORE = "more"
    STOP = "stop"
    DROP = "drop"


class History(list[tuple[int, int]]):
    """Rounds of a text so far: (drafted, accepted) of each. It only grows."""

    def __init__(self, rounds: list[tuple[int, int]] | tuple[()] = ()) -> None:
        super().__init__(rounds)
        self._folded: dict[Any, tuple[int, Any]] = {}

    def fold(self, step: Callable[[State, tuple[int, int]], State], start: State) -> State:
        """Return what `functools.reduce(step, self, start)` does, without going through all rounds again.

        Parameters
        ----------
        step
            Returns the state after a round from the one before it; the same object in each call.
        start
            State before the first round; hashable.
        """
        n_done, state = self._folded.get((step, start), (0, start))
        if n_done < len(self):
            for played in self[n_done:]:
                state = step(state, played)
            self._folded[step, start] = len(self), state
        return state


@dataclass
class Round:
    """What a policy may know of a round: a draft, and its verification to come.

    Attributes
    ----------
    entropies : list of float
        Of the draft's distribution that each drafted token came from, in nats.
    top_p : list of float
        Probability of the most likely token there.
    token_p : list of float
        Probability of the drafted token itself.
    previous : History
    """

    entropies: list[float] = field(default_factory=list)
    top_p: list[float] = field(default_factory=list)
    token_p: list[float] = field(default_factory=list)
    previous: History = field(default_factory=History)


# Asked before each token of a draft, so without tokens as well: STOP means there that nothing is drafted.
Policy = Callable[[Round], Decision]


@dataclass(frozen=True)
class Parameter:
    """A number that a policy depends on.

    Attributes
    ----------
    default : float
    limit : Limit
    meaning : str
    grid : tuple of float
        Values that a search tries; empty: the default alone.
    """

    default: float
    limit: Limit
    meaning: str
    grid: tuple[float, ...] = ()


@dataclass(frozen=True)
class Family:
    """A policy whose parameters are open.

    Attributes
    ----------
    decide
        Called with a round, the parameters by name, and `costs` where it needs them.
    parameters : dict of Parameter
    needs_costs : bool
    """

    decide: Callable[..., Decision]
    parameters: dict[str, Parameter]
    needs_costs: bool = False

    @property
    def meaning(self) -> str:
        """Sentence that says when it stops."""
        return (self.decide.__doc__ or "").partition("\n")[0]


KEEP = Parameter(1, Limit(0, 1), "1: the unsure token is verified too; 0: it is dropped", (1, 0))
MOST = Parameter(100, Limit(1, 1 << 10), "tokens of a draft, at most")


def unless(unsure: bool, entropies: list[float], keep: int, most: int) -> Decision:
    """Go on, unless the last token is unsure or there are as many as are allowed."""
    if unsure:
        return Decision.STOP if keep else Decision.DROP
    return Decision.MORE if len(entropies) < most else Decision.STOP
