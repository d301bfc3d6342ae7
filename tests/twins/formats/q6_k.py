"""Q6_K: weight = code * scale, codes of 6 bits and factors of 8."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pyquant.models.tensor_type import TensorType as Type
from tests.twins.formats.base import halves
from tests.twins.formats.signed_factors import SignedFactors
from tests.twins.scale_search import SUB, Bytes, Floats, IntegerLevels


class Q6_K(SignedFactors):
    """Codes of 6 bits."""

    type: ClassVar = Type.Q6_K
    levels = IntegerLevels(-32, 31)
    factors = IntegerLevels(-128, 127)
    apart = 3

    def store(self, opened: Floats, stored: Floats, codes: Bytes) -> Bytes:
        parts = codes.reshape(2, 4, SUB, -1)  # of 128 columns, four times 32
        low, high = parts & 15, parts >> 4
        nibbles = np.stack([low[:, part] | low[:, part + 2] << 4 for part in (0, 1)], axis=1)
        pairs = np.bitwise_or.reduce([high[:, part] << 2 * part for part in range(4)])
        factors = stored[:, 0].astype(np.int8).view(np.uint8)
        n_rows = codes.shape[1]
        return np.hstack(
            [nibbles.reshape(-1, n_rows).T, pairs.reshape(-1, n_rows).T, factors.T, halves(opened[0])]
        )
