"""Interface of policies: what decides, before each token, whether a draft goes on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from pyquant.generation.speculative.policies.certainty import Certainty
from pyquant.generation.speculative.policies.costs import Costs
from pyquant.generation.speculative.policies.learned import Learned
from pyquant.limits import Limit

State = TypeVar("State")
LONGEST = 100  # tokens of a draft, whatever a policy says


class Decision(Enum):
    """Answer of a policy: draft another token, stop, or stop without the last drafted token."""

    MORE = "more"
    STOP = "stop"
    DROP = "drop"


class History(list[tuple[int, int]]):
    """Rounds of a completion so far, (drafted, accepted) of each; it remembers what was made of them."""

    def __init__(self, rounds: list[tuple[int, int]] | None = None) -> None:
        super().__init__(rounds or [])
        self._folded: dict[Any, tuple[int, Any]] = {}

    def fold(self, step: Callable[[State, tuple[int, int]], State], start: State) -> State:
        """Return `functools.reduce(step, self, start)`, without going through all rounds again."""
        n_done, state = self._folded.get((step, start), (0, start))
        for played in self[n_done:]:
            state = step(state, played)
        self._folded[step, start] = len(self), state
        return state


@dataclass
class Round:
    """What a policy may know of a round: a draft, and its verification to come.

    Attributes
    ----------
    drafted : list of Certainty
        Of each token so far.
    unread : int
        Tokens that the draft has to read before it drafts: one; more where it was not asked in rounds before,
        and at first the prompt.
    room : float
        Tokens that the completion may still have.
    learned : Learned
        From all rounds before, those of other completions of the run too.
    """

    drafted: list[Certainty] = field(default_factory=list)
    previous: History = field(default_factory=History)
    unread: int = 1
    room: float = math.inf
    learned: Learned = field(default_factory=Learned)


# Asked before each token of a draft, so without tokens as well: STOP means there that nothing is drafted.
Policy = Callable[[Round], Decision]


class Parameter(NamedTuple):
    """A number that a policy depends on; of its grid a search tries all values, without one the default."""

    default: float
    limit: Limit
    grid: tuple[float, ...] = ()


class Family(NamedTuple):
    """A policy whose parameters are open.

    `decide` is called with a round and the parameters by name; where there is `from_costs`, that is called
    once with costs and parameters, and what it returns is `known`.
    """

    decide: Callable[..., Decision]
    parameters: dict[str, Parameter]
    from_costs: Callable[[Costs, dict[str, float]], Any] | None = None


MOST = Parameter(LONGEST, Limit(1, 1 << 10))  # tokens of a draft
