"""IQ3_XXS: points of 4 columns, whose signs are even in each 8."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pyquant.models.tensor_type import TensorType as Type
from tests.twins.formats.grid_format import GridFormat, signs_and_factors


class IQ3_XXS(GridFormat):
    """A grid of 256 points."""

    type: ClassVar = Type.IQ3_XXS
    point: ClassVar = 4
    n_points: ClassVar = 256
    even: ClassVar = True
    unit: ClassVar = 0.5

    def pack(self, factors, numbers, minuses):
        words = signs_and_factors(factors, minuses).view(np.uint8)
        return np.hstack([numbers.T.astype(np.uint8), words])
