"""What is known of a drafted token before it is verified."""

from __future__ import annotations

from typing import NamedTuple


class Certainty(NamedTuple):
    """How sure a draft is of a token that it proposes.

    The entropy of its distribution there, at temperature 1 among allowed tokens, in nats; and probabilities
    there of the most likely token, and of the one that is proposed. matched: of an n-gram draft, how many
    tokens before it were the same where it was looked up, times how often it came there; of a model 0.
    """

    entropy: float
    top_p: float
    token_p: float
    matched: int = 0
