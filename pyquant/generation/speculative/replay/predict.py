"""Predict what drafting brings before a token is drafted: from acceptance and costs alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pyquant import limits
from pyquant.generation.speculative.policies.costs import Costs


@dataclass(frozen=True)
class Predicted:
    """What drafts of k tokens bring if each token is accepted with the same chance, whatever came before.

    Attributes
    ----------
    k : int
    tokens_per_round : float
    ms_per_token : float
    gain : float
        Time of the target alone over this.
    """

    k: int
    tokens_per_round: float
    ms_per_token: float
    gain: float

    def to_json(self) -> dict[str, Any]:
        """Return it as `pyquant draft predict --json` prints each of its `lengths`."""
        return asdict(self)


def predict(acceptance: float, costs: Costs, k: int) -> Predicted:
    """Predict the gain of drafts of k tokens: E / (T(k+1) / T(1) + c k + f a^k).

    E = (1 - a^(k+1)) / (1 - a) tokens come of a round, a being the acceptance; c is the seconds of a draft
    token over those of a pass of one token, T(1) (Leviathan et al., 2023, with T(n) that depends on n), and
    f of a token more that the draft has to read after a round in which all are accepted.

    Parameters
    ----------
    acceptance
        Of a drafted token: `compare`'s same top where tokens are the most likely ones, its sampled acceptance
        where they are drawn.
    costs
    k
        Tokens of a draft.

    Raises
    ------
    ConfigError
    """
    limits.ACCEPTANCE.check("acceptance", acceptance)
    limits.DRAFT_TOKENS.check("k", k)
    tokens = sum(acceptance**n for n in range(k + 1))
    seconds = costs.of_round(k) + (acceptance**k * costs.further if k else 0.0)
    return Predicted(k, tokens, 1000 * seconds / tokens, tokens * costs.alone / seconds)
