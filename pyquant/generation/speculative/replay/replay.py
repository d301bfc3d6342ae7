"""Replay policies on a record."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pyquant.generation.speculative.policies import make_policy
from pyquant.generation.speculative.policies.certainty import Certainty
from pyquant.generation.speculative.policies.costs import Costs
from pyquant.generation.speculative.policies.learned import Learned
from pyquant.generation.speculative.policies.online_costs import Spent
from pyquant.generation.speculative.replay.oracle import best_rounds
from pyquant.generation.speculative.replay.record import Along, Record
from pyquant.generation.speculative.rounds import Played, play

NONE, ORACLE = "none", "oracle"  # the target alone, and the least that any policy could take


@dataclass(frozen=True)
class Replayed:
    """What came of a policy on all completions of a record.

    Attributes
    ----------
    ms_per_token_error : float
        One standard error, completions being what is drawn at random.
    gain : float
        Milliseconds of the target alone over these.
    tokens : int
        Of the completions, but for the first one of each, which comes from the prompt's pass.
    rounds, calls, drafted, accepted : int
        Passes of the target, and sums of what `Played` has.
    """

    policy: str
    ms_per_token: float
    ms_per_token_error: float | None
    gain: float
    tokens_per_round: float
    acceptance: float | None
    tokens: int
    rounds: int
    calls: int
    drafted: int
    accepted: int


@dataclass(frozen=True)
class Replay:
    """A record, and costs of rounds, on which any policy can be replayed.

    decides: what policies decide by, which may be an earlier measurement; None: the costs.
    """

    record: Record
    costs: Costs
    decides: Costs | None = None

    def run(self, policy: str) -> Replayed:
        """Replay a policy, or "none" or "oracle", which policies are compared with. Raises ConfigError."""
        completions = self.rounds(policy)
        every = [played for rounds in completions for played in rounds]
        tokens = np.array([max(len(completion.said) - 1, 0) for completion in self.record.completions], float)
        seconds = np.array([sum(played.seconds for played in rounds) for rounds in completions])
        n, n_tokens = len(completions), max(float(tokens.sum()), 1.0)
        mean = float(seconds.sum()) / n_tokens
        spread = float(((seconds - mean * tokens) ** 2).sum())
        calls, drafted, accepted = (sum(played[i] for played in every) for i in range(3))
        return Replayed(
            policy=policy,
            ms_per_token=1000 * mean,
            ms_per_token_error=1000 * math.sqrt(spread * n / (n - 1)) / n_tokens if n > 1 else None,
            gain=self.costs.alone / mean if mean else 1.0,
            tokens_per_round=n_tokens / max(len(every), 1),
            acceptance=accepted / drafted if drafted else None,
            tokens=int(tokens.sum()),
            rounds=len(every),
            calls=int(calls),
            drafted=int(drafted),
            accepted=int(accepted),
        )

    def rounds(self, policy: str) -> list[list[Played]]:
        """Return the rounds of each completion. Raises ConfigError."""
        record, costs = self.record, self.costs
        if policy == ORACLE:
            return [best_rounds(completion, costs) for completion in record.completions]
        decide = make_policy("fixed:k=0" if policy == NONE else policy, self.decides or costs)
        learned, drops = Learned(), not record.drawn  # as where tokens are generated
        return [
            list(play(_ReplayedCompletion(completion, record.max_tokens, drops, costs), decide, learned))
            for completion in record.completions
        ]


class _ReplayedCompletion:
    """A `rounds.Completion` behind its first token. What a draft takes to read the prompt is left out."""

    reads, unread = True, 1

    def __init__(self, along: Along, most: int, drops: bool, costs: Costs) -> None:
        self.drops = drops
        self._said, self._costs, self._most = along.said, costs, most
        self._end = len(along.said) - (not along.ended)  # a pass brings one more, but behind the end
        self._at, self._n_calls, self._n_drafted = 1, 0, 0

    @property
    def done(self) -> bool:
        return self._at >= len(self._said)

    @property
    def room(self) -> int:
        return self._most - self._at

    @property
    def goes_on(self) -> bool:
        return self._at + self._n_calls < self._end

    def propose(self) -> Certainty | None:
        at = self._at + self._n_calls
        if (sure := self._said[at].sure) is not None:
            self._last = (
                sure  # n-grams go on behind a refused token, though they say nothing on the completion
            )
        elif all(said.accepted for said in self._said[self._at : at]):
            return None
        self._n_calls += 1
        self._n_drafted += 1
        return self._last

    def drop(self) -> None:
        self._n_drafted -= 1

    def verify(self) -> tuple[int, Spent]:
        n_accepted = 0
        while n_accepted < self._n_drafted and self._said[self._at + n_accepted].accepted:
            n_accepted += 1
        n_calls, costs = self._n_calls, self._costs
        first, further = (costs.draft, (n_calls - 1) * costs.draft_next) if n_calls else (0.0, 0.0)
        verify = costs.of_round(n_calls, self._n_drafted) - first - further
        self._at += n_accepted + 1
        self._n_calls = self._n_drafted = 0
        return n_accepted, Spent(first, further, verify)
