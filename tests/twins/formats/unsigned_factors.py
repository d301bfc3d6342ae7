"""Q2_K, Q4_K and Q5_K: super-blocks of 256 columns whose sub-blocks have a scale and a minimum.

Twin of csrc/gptq/formats/unsigned_factors.h.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tests.twins.formats.base import SUPER, Format
from tests.twins.scale_search import (
    Floats,
    IntegerLevels,
    clip,
    inverse,
    nearest,
    search_scale_and_minimum,
)


class UnsignedFactors(Format):
    """Levels from 0 on, fp16 scales of scales and of minima, and a factor from 0 on, on either.

    Attributes
    ----------
    factors : IntegerLevels
        The factors that a sub-block may have.
    """

    columns: ClassVar = SUPER
    parts: ClassVar = 2
    levels: IntegerLevels
    factors: ClassVar[IntegerLevels]

    # Distances from the factors that a search chose, of scale and minimum.
    steps: ClassVar = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1), (1, -1), (-1, 1))

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
