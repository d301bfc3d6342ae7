"""Make what rounding has to know of a matrix's input from STATS by the formulas of docs/compensation.md."""

from __future__ import annotations

import numpy as np

from pyquant import _core
from pyquant.calibration.calibration import Calibration
from pyquant.rounding.factors import MIXED
from pyquant.schemes.damping import FIRST_TOKEN


def factor_of(
    stats: Calibration, name: str, expert: int, *, damping: float, together: tuple[int, int] | int
) -> _core.Factor:
    """Second moments, with a share of the first token where attention mixes what V makes of the input.

    Damping is in units of the diagonal's mean without that share.
    """
    h = stats.moments(name, expert)
    if any(kind in matrix for matrix in stats.sharing(name) for kind in MIXED):
        first = stats.first_token(name)
        with_first = h + np.outer(first, first) * np.float32(FIRST_TOKEN)
        damping, h = damping * float(h.trace() / with_first.trace()), with_first
    return _core.factorize(h, damping=damping, together=together)
