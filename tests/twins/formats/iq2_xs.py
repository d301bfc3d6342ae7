"""IQ2_XS: points of 8 columns, whose signs are even."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pyquant.models.tensor_type import TensorType as Type
from tests.twins.formats.grid_format import GridFormat, nibbles_of


class IQ2_XS(GridFormat):
    """A grid of 512 points."""

    type: ClassVar = Type.IQ2_XS
    sub: ClassVar = 16
    point: ClassVar = 8
    n_points: ClassVar = 512
    even: ClassVar = True
    unit: ClassVar = 0.25

    def pack(self, factors, numbers, minuses):
        words = np.ascontiguousarray((numbers | (minuses & 127).astype(np.uint16) << np.uint16(9)).T)
        return np.hstack([words.view(np.uint8), nibbles_of(factors)])
