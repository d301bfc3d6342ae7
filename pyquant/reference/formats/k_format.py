"""Q4_K and Q5_K: super-blocks of 256 columns whose sub-blocks of 32 have a scale and a minimum.

Twin of csrc/compensate/formats/k_format.h.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pyquant.reference.formats.base import SUPER, Format, as_halves, halves
from pyquant.reference.scale_search import (
    SUB,
    Bytes,
    Floats,
    IntegerLevels,
    clip,
    inverse,
    nearest,
    search_scale_and_minimum,
)


class KFormat(Format):
    """fp16 scales of scales and of minima, and a factor from 0 on, for each sub-block."""

    columns: ClassVar = SUPER
    parts: ClassVar = 2
    levels: IntegerLevels
    factors: ClassVar[IntegerLevels] = IntegerLevels(0, 63)

    # From the factors that a search found, of scale and minimum.
    steps: ClassVar = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1), (1, -1), (-1, 1))

    def open(self, x: Floats, w: Floats) -> Floats:
        largest = np.zeros((2, x.shape[1]), np.float32)
        for at in range(0, SUPER, SUB):
            best = search_scale_and_minimum(x[at : at + SUB], w[at : at + SUB], self.levels)
            largest = np.where(largest > best, largest, best)
        return as_halves(largest / np.float32(63))

    def trials(self, opened: Floats, x: Floats, w: Floats) -> Floats:
        best = search_scale_and_minimum(x, w, self.levels)
        tried = [
            self._within(self.representable(opened, part, best[part]) + np.array(steps, np.float32)[:, None])
            for part, steps in enumerate(zip(*self.steps))
        ]
        return np.stack(tried, axis=1)

    def value(self, opened: Floats, part: int, stored: Floats) -> Floats:
        return opened[part] * stored

    def representable(self, opened: Floats, part: int, value: Floats) -> Floats:
        factor = value * inverse(opened[part])
        return self._within(nearest(np.where(factor < self.factors.last, factor, self.factors.last)))

    def _within(self, factor: Floats) -> Floats:
        return clip(factor, 0, self.factors.last)

    def store(self, opened: Floats, stored: Floats, codes: Bytes) -> Bytes:
        s, m = stored.astype(np.uint8).swapaxes(0, 1)
        # 6 bits each: 4 + 4 whole ones, then 4 + 4 in two parts
        factors = [s[:4] | (s[4:] >> 4) << 6, m[:4] | (m[4:] >> 4) << 6, (s[4:] & 15) | (m[4:] & 15) << 4]
        blocks = codes.reshape(-1, SUB, codes.shape[1])
        fifth = [np.bitwise_or.reduce([(block >> 4) << sub for sub, block in enumerate(blocks)])]
        low = [(blocks[sub] & 15) | (blocks[sub + 1] & 15) << 4 for sub in range(0, len(blocks), 2)]
        high = fifth if self.levels.last > 15 else []
        return np.hstack([halves(opened[0]), halves(opened[1]), np.vstack([*factors, *high, *low]).T])
