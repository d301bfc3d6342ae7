"""Q3_K: weight = code * scale, codes of 3 bits and factors of 6."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pyquant.models.tensor_type import TensorType as Type
from tests.twins.formats.base import halves, two_bits
from tests.twins.formats.signed_factors import SignedFactors
from tests.twins.scale_search import SUB, Bytes, Floats, IntegerLevels


class Q3_K(SignedFactors):
    """Codes of 3 bits."""

    type: ClassVar = Type.Q3_K
    levels = IntegerLevels(-4, 3)
    factors = IntegerLevels(-32, 31)
    apart = 1

    def store(self, opened: Floats, stored: Floats, codes: Bytes) -> Bytes:
        third = codes.reshape(-1, SUB, codes.shape[1]) >> 2
        high = np.bitwise_or.reduce([bits << block for block, bits in enumerate(third)])
        factors = (stored[:, 0] + 32).astype(np.uint8)
        low = (factors[:8] & 15) | (factors[8:] & 15) << 4
        upper = np.bitwise_or.reduce([factors[4 * i : 4 * i + 4] >> 4 << 2 * i for i in range(4)])
        return np.hstack([high.T, two_bits(codes), low.T, upper.T, halves(opened[0])])
