"""One scale for a whole matrix, in blocks of Q8_0: integer codes that are meant to be entropy-coded."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tests.twins.formats.base import OneScale, as_halves
from tests.twins.scale_search import Bytes, Floats, IntegerLevels


class EcsqFormat(OneScale):
    """A scale that blocks do not choose; a block that does not fit into int8 doubles it until it does.

    Parameters
    ----------
    step : float16, or (n_rows,) float16
        The scale, of all rows or of each.
    """

    parts: ClassVar = 0
    levels = IntegerLevels(-127, 127)

    def __init__(self, step: np.float16 | NDArray[np.float16]) -> None:
        self._step = step

    def trials(self, opened: Floats, x: Floats, w: Floats) -> Floats:
        largest, scale = np.abs(x).max(axis=0), np.full(x.shape[1], self._step, np.float32)
        # 112 of 127: some room is left for what is passed on within the block.
        while (grows := (largest > 112 * scale) & (scale < 32768)).any():
            scale[grows] *= 2
        return np.stack([as_halves(scale), np.zeros_like(scale)])[None]

    def pack(self, codes: Bytes) -> Bytes:
        return codes - np.uint8(127)
