"""What the rounds of a run teach: seconds and acceptance rates, for those that come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyquant.generation.speculative.policies.acceptance_rates import AcceptanceRates
from pyquant.generation.speculative.policies.certainty import Certainty
from pyquant.generation.speculative.policies.clock import Clock
from pyquant.generation.speculative.policies.online_costs import OnlineCosts, Spent


@dataclass
class Learned:
    """What policies know of the rounds of a run so far."""

    clock: Clock = field(default_factory=Clock)
    costs: OnlineCosts = field(default_factory=OnlineCosts)
    rates: AcceptanceRates = field(default_factory=AcceptanceRates)

    def add(
        self, drafted: Sequence[Certainty], n_verified: int, n_accepted: int, unread: int, spent: Spent
    ) -> None:
        """Enter a round.

        Parameters
        ----------
        drafted
            What is known of tokens that the draft computed.
        n_verified, n_accepted
            How many of them were verified, and accepted.
        unread
            Tokens that the draft had to read before its first one.
        spent
        """
        self.clock.add(len(drafted), n_accepted + 1, spent.total)
        self.costs.add(len(drafted), n_verified, n_accepted + 1, unread, spent)
        self.rates.add(drafted, n_verified, n_accepted)
