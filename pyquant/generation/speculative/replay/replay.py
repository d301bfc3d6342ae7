"""Replay policies on a record."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pyquant.generation.speculative.policies import make_policy
from pyquant.generation.speculative.policies.costs import Costs
from pyquant.generation.speculative.policies.ledger import Ledger
from pyquant.generation.speculative.replay.oracle import best_rounds
from pyquant.generation.speculative.replay.record import Record
from pyquant.generation.speculative.replay.replayed import ReplayedText
from pyquant.generation.speculative.rounds import Played, play

NONE, ORACLE = "none", "oracle"  # the target alone, and the least that any policy could take


@dataclass(frozen=True)
class Replayed:
    """What came of a policy on all texts of a record.

    Attributes
    ----------
    ms_per_token, ms_per_token_error : float
        Milliseconds, and one standard error, texts being what is drawn at random.
    gain : float
        Milliseconds of the target alone over these.
    acceptance : float or None
        Accepted of verified tokens; None where nothing was drafted.
    tokens : int
        Of the texts, but for the first one of each, which comes from the prompt's pass.
    rounds, calls, drafted, accepted : int
        Passes of the target, and sums of what `Played` has.
    """

    policy: str
    ms_per_token: float
    ms_per_token_error: float
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
        """Replay a policy by its name and parameters; "none" and "oracle" are what it is compared with.

        Raises ConfigError.
        """
        texts = self.rounds(policy)
        every = [played for rounds in texts for played in rounds]
        tokens = np.array([max(len(text.said) - 1, 0) for text in self.record.texts], float)
        seconds = np.array([sum(played.seconds for played in rounds) for rounds in texts])
        n, n_tokens = len(texts), max(float(tokens.sum()), 1.0)
        mean = float(seconds.sum()) / n_tokens
        spread = float(((seconds - mean * tokens) ** 2).sum())
        calls, drafted, accepted = (sum(played[i] for played in every) for i in range(3))
        return Replayed(
            policy=policy,
            ms_per_token=1000 * mean,
            ms_per_token_error=1000 * math.sqrt(spread * n / max(n - 1, 1)) / n_tokens,
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
        """Return the rounds of each text. Raises ConfigError."""
        record, costs = self.record, self.costs
        if policy == ORACLE:
            return [best_rounds(text, costs) for text in record.texts]
        decide = make_policy("fixed:k=0" if policy == NONE else policy, self.decides or costs)
        ledger, drops = Ledger(), not record.drawn  # as `write.live` drops
        return [
            list(play(ReplayedText(text, record.max_tokens, drops, costs), decide, ledger))
            for text in record.texts
        ]
