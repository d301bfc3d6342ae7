"""Q4_K and Q5_K: sub-blocks of 32 columns, factors of 6 bits.

Twin of csrc/gptq/formats/k_format.h.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tests.twins.formats.base import SUPER, as_halves, halves
from tests.twins.formats.unsigned_factors import UnsignedFactors
from tests.twins.scale_search import SUB, Bytes, Floats, IntegerLevels, search_scale_and_minimum


class KFormat(UnsignedFactors):
    """The scale of scales lets the largest scale have the highest factor, the scale of minima likewise."""

    factors: ClassVar = IntegerLevels(0, 63)

    def open(self, x: Floats, w: Floats) -> Floats:
        largest = np.zeros((2, x.shape[1]), np.float32)
        for at in range(0, SUPER, SUB):
            best = search_scale_and_minimum(x[at : at + SUB], w[at : at + SUB], self.levels)
            largest = np.where(largest > best, largest, best)
        return as_halves(largest / np.float32(self.factors.last))

    def store(self, opened: Floats, stored: Floats, codes: Bytes) -> Bytes:
        s, m = stored.astype(np.uint8).swapaxes(0, 1)
        # 6 bits each: 4 + 4 whole ones, then 4 + 4 in two parts
        factors = [s[:4] | (s[4:] >> 4) << 6, m[:4] | (m[4:] >> 4) << 6, (s[4:] & 15) | (m[4:] & 15) << 4]
        blocks = codes.reshape(-1, SUB, codes.shape[1])
        fifth = [np.bitwise_or.reduce([(block >> 4) << sub for sub, block in enumerate(blocks)])]
        low = [(blocks[sub] & 15) | (blocks[sub + 1] & 15) << 4 for sub in range(0, len(blocks), 2)]
        high = fifth if self.levels.last > 15 else []
        return np.hstack([halves(opened[0]), halves(opened[1]), np.vstack([*factors, *high, *low]).T])
