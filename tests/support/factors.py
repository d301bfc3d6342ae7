"""Make what rounding has to know of a matrix's input from HESSIAN by the formulas of docs/methods/gptq.md."""

from __future__ import annotations

import numpy as np

from pyquant import _core
from pyquant.calibration.calibration import Calibration
from pyquant.rounding.factors import MIXED
from pyquant.schemes.dampening import FIRST_TOKEN


def factor_of(
    stats: Calibration, name: str, expert: int, *, dampening: float, together: tuple[int, int, int] | int
) -> _core.Factor:
    """Hessian statistics, with a share of the first token where attention mixes what V makes of the input.

    Dampening is in units of the diagonal's mean without that share.
    """
    h = stats.hessian(name, expert)
    if any(kind in matrix for matrix in stats.sharing(name) for kind in MIXED):
        first = stats.first_token(name)
        with_first = h + np.outer(first, first) * np.float32(FIRST_TOKEN)
        dampening, h = dampening * float(h.trace() / with_first.trace()), with_first
    return _core.factorize(h, dampening=dampening, together=together)
