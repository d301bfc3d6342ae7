"""Q8_0: weight = code * scale."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pyquant.models.tensor_type import TensorType as Type
from tests.twins.formats.base import OneScale
from tests.twins.scale_search import Bytes, IntegerLevels


class Q8_0(OneScale):
    """Codes of 8 bits, signed."""

    type: ClassVar = Type.Q8_0
    levels = IntegerLevels(-127, 127)

    def pack(self, codes: Bytes) -> Bytes:
        return codes - np.uint8(127)
