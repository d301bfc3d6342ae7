"""Policy `svip` (Zhang et al., "Draft model knows when to stop", arXiv 2411.18462)."""

from __future__ import annotations

import math

from pyquant.generation.speculative.policies.policy import (
    KEEP,
    MOST,
    Decision,
    Family,
    Parameter,
    Round,
    unless,
)
from pyquant.limits import Limit


def svip(round: Round, *, threshold: float, keep: int, most: int) -> Decision:
    """Stop after the token at which the square root of the entropy is above a threshold."""
    entropies = round.entropies
    return unless(bool(entropies) and math.sqrt(entropies[-1]) > threshold, entropies, keep, most)


FAMILY = Family(
    svip,
    {
        "threshold": Parameter(
            0.6,
            Limit(0, 10, whole=False),
            "root of the entropy, in nats",
            (0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.2, 1.5, 1.8, 2.2),
        ),
        "keep": KEEP,
        "most": MOST,
    },
)
