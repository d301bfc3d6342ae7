"""IQ2_S: points of 8 columns."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pyquant.models.tensor_type import TensorType as Type
from tests.twins.formats.grid_format import GridFormat, nibbles_of


class IQ2_S(GridFormat):
    """A grid of 1024 points."""

    type: ClassVar = Type.IQ2_S
    sub: ClassVar = 16
    point: ClassVar = 8
    n_points: ClassVar = 1024
    even: ClassVar = False
    unit: ClassVar = 0.25

    def pack(self, factors, numbers, minuses):
        low, high = numbers.astype(np.uint8), (numbers >> 8).astype(np.uint8)
        high = np.bitwise_or.reduce([high[i::4] << np.uint8(2 * i) for i in range(4)])
        return np.hstack([low.T, minuses.T, high.T, nibbles_of(factors)])
