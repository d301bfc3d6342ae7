"""IQ2_XXS: points of 8 columns, whose signs are even."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pyquant.models.tensor_type import TensorType as Type
from tests.twins.formats.grid_format import GridFormat, signs_and_factors


class IQ2_XXS(GridFormat):
    """A grid of 256 points."""

    type: ClassVar = Type.IQ2_XXS
    point: ClassVar = 8
    n_points: ClassVar = 256
    even: ClassVar = True
    unit: ClassVar = 0.25

    def pack(self, factors, numbers, minuses):
        words = signs_and_factors(factors, minuses).view(np.uint8).reshape(-1, 8, 4)
        points = numbers.T.astype(np.uint8).reshape(-1, 8, 4)
        return np.concatenate([points, words], axis=2).reshape(-1, 64)
