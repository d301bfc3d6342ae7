"""MXFP4 and NVFP4: codes of the type E2M1, scales of 8 bits.

Twin of csrc/gptq/formats/fp4.h.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tests.twins.formats.base import Format
from tests.twins.scale_search import Floats, TableLevels, clip, search_scale


class Fp4Format(Format):
    """Levels of E2M1, doubled as GGML has them; a scale is stored as its code.

    A scale's code is the upper bits of a float32 with another exponent.

    Attributes
    ----------
    mantissa, exponent : int
        Bits of the mantissa; of what power of two the float32 is a multiple.
    lowest, highest : int
        Codes that are used.
    """

    levels = TableLevels(
        np.array([-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12], np.int8),
        np.array([15, 14, 13, 12, 11, 10, 9, 0, 1, 2, 3, 4, 5, 6, 7], np.uint8),
    )
    mantissa: ClassVar[int]
    exponent: ClassVar[int]
    lowest: ClassVar[int]
    highest: ClassVar[int]

    steps: ClassVar = (0, -1, 1, -2, 2)  # from the code of the scale that a search found

    def trials(self, opened: Floats, x: Floats, w: Floats) -> Floats:
        best = self._code(np.abs(search_scale(x, w, self.levels)))
        tried = self._within(best + np.array(self.steps, np.float32)[:, None])
        return np.stack([tried, np.zeros_like(tried)], axis=1)

    def value(self, opened: Floats, part: int, stored: Floats) -> Floats:
        if part == 1:
            return np.zeros_like(stored)
        bits = stored.astype(np.uint32) << np.uint32(23 - self.mantissa)
        return bits.view(np.float32) * np.float32(2.0**self.exponent)

    def representable(self, opened: Floats, part: int, value: Floats) -> Floats:
        return self._code(np.where(value > 0, value, np.float32(0)))

    def _code(self, value: Floats) -> Floats:
        scaled = np.minimum(value * np.float32(2.0**-self.exponent), np.float32(1e38))
        shift = np.uint32(23 - self.mantissa)
        rounded = scaled.view(np.uint32) + (np.uint32(1) << (shift - np.uint32(1)))
        return self._within((rounded >> shift).astype(np.float32))

    def _within(self, code: Floats) -> Floats:
        return clip(code, self.lowest, self.highest)
