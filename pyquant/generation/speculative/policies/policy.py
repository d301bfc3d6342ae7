"""Interface of policies: what decides, before each token, whether a draft goes on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from pyquant.generation.speculative.policies.costs import Costs
from pyquant.generation.speculative.policies.ledger import Ledger
from pyquant.limits import Limit

State = TypeVar("State")
Item = TypeVar("Item")


class Decision(Enum):
    """Answer of a policy: draft another token, stop, or stop without the last drafted token."""

    MORE = "more"
    STOP = "stop"
    DROP = "drop"


class Grown(list[Item]):
    """A list that only grows, and remembers what was made of its items."""

    def __init__(self, items: Iterable[Item] = ()) -> None:
        super().__init__(items)
        self._folded: dict[Any, tuple[int, Any]] = {}

    def fold(self, step: Callable[[State, Item], State], start: State) -> State:
        """Return what `functools.reduce(step, self, start)` does, without going through all items again.

        Parameters
        ----------
        step
            Returns the state after an item from the one before it; the same object in each call.
        start
            State before the first item; hashable.
        """
        n_done, state = self._folded.get((step, start), (0, start))
        if n_done < len(self):
            for item in self[n_done:]:
                state = step(state, item)
            self._folded[step, start] = len(self), state
        return state


class History(Grown[tuple[int, int]]):
    """Rounds of a text so far: (drafted, accepted) of each."""


@dataclass
class Round:
    """What a policy may know of a round: a draft, and its verification to come.

    Attributes
    ----------
    entropies : Grown of float
        Of the draft's distribution that each drafted token came from, in nats.
    top_p : Grown of float
        Probability of the most likely token there.
    token_p : Grown of float
        Probability of the drafted token itself.
    previous : History
    unread : int
        Tokens that the draft has to read before it drafts: one; more where it was not asked in rounds before,
        and at first the prompt.
    room : float
        Tokens that the text may still have.
    ledger : Ledger
        Of all rounds before, those of other texts of the run too.
    """

    entropies: Grown[float] = field(default_factory=Grown)
    top_p: Grown[float] = field(default_factory=Grown)
    token_p: Grown[float] = field(default_factory=Grown)
    previous: History = field(default_factory=History)
    unread: int = 1
    room: float = math.inf
    ledger: Ledger = field(default_factory=Ledger)


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
        Called with a round, the parameters by name, and, where there is `from_costs`, what that returned as
        `known`.
    parameters : dict of Parameter
    from_costs : callable or None
        What is computed once, from costs and parameters; None: it needs no costs.
    """

    decide: Callable[..., Decision]
    parameters: dict[str, Parameter]
    from_costs: Callable[[Costs, dict[str, float]], Any] | None = None

    @property
    def meaning(self) -> str:
        """Sentence that says when it stops."""
        return (self.decide.__doc__ or "").partition("\n")[0]


LONGEST = 100  # tokens of a draft, whatever a policy says
KEEP = Parameter(1, Limit(0, 1), "1: the unsure token is verified too; 0: it is dropped", (1, 0))
MOST = Parameter(LONGEST, Limit(1, 1 << 10), "tokens of a draft, at most")


def unless(unsure: bool, entropies: list[float], keep: int, most: int) -> Decision:
    """Go on, unless the last token is unsure or there are as many as are allowed."""
    if unsure:
        return Decision.STOP if keep else Decision.DROP
    return Decision.MORE if len(entropies) < most else Decision.STOP
