"""Q4_1 and Q5_1: blocks of 32 columns with an fp16 scale and an fp16 minimum.

Twin of csrc/gptq/formats/scale_and_minimum.h.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tests.twins.formats.base import Format, as_halves, halves
from tests.twins.scale_search import Bytes, Floats, IntegerLevels, search_scale_and_minimum


class OneScaleAndMinimum(Format):
    """weight = code * scale - minimum; the file has the minimum's negative."""

    parts: ClassVar = 2
    levels: IntegerLevels

    # Factors on the scale that a search found, and how many scales the minimum moves.
    tried: ClassVar = (
        (1, 0), (1, -0.5), (1, 0.5), (0.97, 0), (1.03, 0), (0.94, 0), (1.06, 0), (0.94, -0.5), (1.06, 0.5),
    )  # fmt: skip

    def trials(self, opened: Floats, x: Floats, w: Floats) -> Floats:
        scale, minimum = search_scale_and_minimum(x, w, self.levels)
        factors, shifts = np.array(self.tried, np.float32).T[..., None]
        return np.stack([as_halves(scale * factors), as_halves(minimum + scale * shifts)], axis=1)

    def value(self, opened: Floats, part: int, stored: Floats) -> Floats:
        return stored

    def representable(self, opened: Floats, part: int, value: Floats) -> Floats:
        return as_halves(value)

    def store(self, opened: Floats, stored: Floats, codes: Bytes) -> Bytes:
        return np.hstack([halves(stored[0, 0]), halves(-stored[0, 1]), self.pack(codes.T)])

    @abstractmethod
    def pack(self, codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Make the bytes that follow the minimum: (n_rows, 32) codes to (n_rows, n_bytes), uint8."""
