"""Put what a policy took beside what costs, a record and acceptance alone say of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pyquant.generation.speculative.policies import read_policy
from pyquant.generation.speculative.policies.costs import Costs, unread_after
from pyquant.generation.speculative.record.record import Record
from pyquant.generation.speculative.replay.predict import predict
from pyquant.generation.speculative.replay.simulate import NONE, Simulation
from pyquant.generation.speculative.write.result import DraftedText


@dataclass(frozen=True)
class Foretold:
    """Milliseconds per token of a policy, measured and foretold.

    Attributes
    ----------
    policy : str
        None for the target alone.
    measured : float
        By the clock, without the prompts and the first round of each text, which reads the draft's prompt.
    by_costs : float
        Costs of the same rounds.
    replayed : float or None
        Of a replay on a record of these texts; None without one.
    predicted : float or None
        From the record's acceptance alone, which the formula takes to be the same at every token; None
        without a record or a drafted token, and for drafts of no fixed length.
    """

    policy: str | None
    measured: float
    by_costs: float
    replayed: float | None
    predicted: float | None

    def to_json(self) -> dict[str, Any]:
        """Return it as `pyquant draft run --costs FILE --json` prints each of its `foretold`."""
        return asdict(self)


def foretell(
    policy: str | None, texts: Sequence[DraftedText], costs: Costs, simulation: Simulation | None
) -> Foretold | None:
    """Compare texts that were drafted with costs and, if there is one, with a record of them.

    Parameters
    ----------
    policy
        As `make_policy` takes it; None for the target alone.
    texts
        What was written with it.
    costs
    simulation
        A record of the same texts, with these costs.

    Returns
    -------
    Foretold or None
        None where no text has a second round.
    """
    n_tokens, measured, by_costs = 0, 0.0, 0.0
    for text in texts:
        unread = 1
        for i, ((calls, seconds), (drafted, accepted)) in enumerate(zip(text.spent, text.rounds)):
            if i > 0:
                n_tokens += accepted + 1
                measured += seconds
                by_costs += costs.of_round(calls, drafted, unread)
            unread = unread_after(unread, calls, accepted)
    if not n_tokens:
        return None
    return Foretold(
        policy,
        1000 * measured / n_tokens,
        1000 * by_costs / n_tokens,
        simulation.run(policy or NONE).ms_per_token if simulation else None,
        _predicted(policy, costs, simulation.record) if simulation else None,
    )


def _predicted(policy: str | None, costs: Costs, record: Record) -> float | None:
    name, parameters = read_policy(policy or "fixed:k=0")
    acceptance = record.acceptance
    if name != "fixed" or acceptance is None:
        return None
    return predict(acceptance, costs, int(parameters["k"])).ms_per_token
