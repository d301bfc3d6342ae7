"""IQ3_S: points of 4 columns."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pyquant.models.tensor_type import TensorType as Type
from tests.twins.formats.grid_format import GridFormat, nibbles_of


class IQ3_S(GridFormat):
    """A grid of 512 points."""

    type: ClassVar = Type.IQ3_S
    point: ClassVar = 4
    n_points: ClassVar = 512
    even: ClassVar = False
    unit: ClassVar = 2.0

    def pack(self, factors, numbers, minuses):
        low, ninth = numbers.T.astype(np.uint8), np.packbits(numbers.T >> 8, axis=1, bitorder="little")
        return np.hstack([low, ninth, minuses.T, nibbles_of(factors)])
