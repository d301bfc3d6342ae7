"""I-types of 2 and 3 bits: points of a grid and signs, factors of 4 bits on the fp16 scale of 256 columns.

Twin of csrc/gptq/formats/grid_format.h.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import ClassVar

import numpy as np
from gguf.quants import dequantize
from numpy.typing import NDArray

from tests.twins.formats.base import SUPER, Format, as_halves, halves
from tests.twins.grid import Grid
from tests.twins.scale_search import Bytes, Floats, clip, inverse, nearest, search_scale


class GridFormat(Format):
    """A weight is scale * (factor + 1/2) * unit * level.

    Attributes
    ----------
    point : int
        Columns of a point.
    n_points : int
        Points of the grid.
    even : bool
        Whether each 8 columns have an even number of minuses.
    unit : float
        A power of two.
    """

    columns: ClassVar = SUPER
    point: ClassVar[int]
    n_points: ClassVar[int]
    even: ClassVar[bool]
    unit: ClassVar[float]

    steps: ClassVar = (0, 1, -1, 2, -2)  # from the factor that a search found

    @cached_property
    def levels(self) -> Grid:
        """The points, as gguf-py decodes them."""
        n = self.n_points
        scale = halves(np.full(n, 2 / self.unit, np.float32))
        numbers = np.zeros((SUPER // self.point, n), np.uint16)
        numbers[0] = np.arange(n)
        packed = self.pack(np.zeros((SUPER // self.sub, n), np.uint8), numbers, np.zeros((32, n), np.uint8))
        points = dequantize(np.hstack([scale, packed]), self.type)[:, : self.point]
        return Grid(points.astype(np.uint8), self.even)

    def open(self, x: Floats, w: Floats) -> Floats:
        scales = [
            self._search(x[at : at + self.sub], w[at : at + self.sub]) for at in range(0, SUPER, self.sub)
        ]
        largest = np.max(scales, axis=0) * (np.float32(1) / np.float32(15.5 * self.unit))
        return np.stack([as_halves(largest), np.zeros_like(largest)])

    def trials(self, opened: Floats, x: Floats, w: Floats) -> Floats:
        factor = self.representable(opened, 0, self._search(x, w))
        tried = clip(factor + np.array(self.steps, np.float32)[:, None], 0, 15)
        return np.stack([tried, np.zeros_like(tried)], axis=1)

    def value(self, opened: Floats, part: int, stored: Floats) -> Floats:
        if part == 1:
            return np.zeros_like(stored)
        return opened[0] * (stored + np.float32(0.5)) * np.float32(self.unit)

    def representable(self, opened: Floats, part: int, value: Floats) -> Floats:
        units = value * inverse(opened[0] * np.float32(self.unit))
        return clip(nearest(np.where(units < 16, units, np.float32(16)) - np.float32(0.5)), 0, 15)

    def store(self, opened: Floats, stored: Floats, codes: Bytes) -> Bytes:
        level = codes.view(np.int8)
        minuses = np.packbits(level < 0, axis=0, bitorder="little")
        numbers = self.levels.numbers(np.abs(level).view(np.uint8))
        packed = self.pack(stored[:, 0].astype(np.uint8), numbers, minuses)
        return np.hstack([halves(opened[0]), packed])

    @abstractmethod
    def pack(self, factors: Bytes, numbers: NDArray[np.uint16], minuses: Bytes) -> Bytes:
        """Make the bytes of a block behind its scale.

        Parameters
        ----------
        factors : (n_subs, n_rows) uint8
            Of each sub-block.
        numbers : (columns // point, n_rows) uint16
            Of each point.
        minuses : (columns // 8, n_rows) uint8
            A bit for each column.

        Returns
        -------
        (n_rows, n_bytes) uint8
            Those of each row.
        """

    def _search(self, x: Floats, w: Floats) -> Floats:
        return np.abs(search_scale(x, w, self.levels.of_one))


def nibbles_of(factors: Bytes) -> Bytes:
    """Pack factors (n, n_rows), 4 bits each, into (n_rows, n / 2) uint8."""
    return (factors[0::2] | factors[1::2] << np.uint8(4)).T


def signs_and_factors(factors: Bytes, minuses: Bytes) -> NDArray[np.uint32]:
    """Pack what 32 columns have, in a word: four times 7 signs, which give the eighth, and a factor.

    Parameters
    ----------
    factors : (8, n_rows) uint8
        Of each 32 columns.
    minuses : (32, n_rows) uint8
        A bit for each column.

    Returns
    -------
    (n_rows, 8) uint32
        The words.
    """
    words = factors.astype(np.uint32) << np.uint32(28)
    for i in range(4):
        words |= (minuses[i::4] & 127).astype(np.uint32) << np.uint32(7 * i)
    return np.ascontiguousarray(words.T)
