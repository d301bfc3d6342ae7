"""Q3_K and Q6_K: super-blocks of 256 columns with an fp16 scale, and a signed factor on it for each 16.

Twin of csrc/gptq/formats/signed_factors.h.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tests.twins.formats.base import SUPER, Format, as_halves
from tests.twins.scale_search import Floats, IntegerLevels, clip, inverse, nearest, search_scale


class SignedFactors(Format):
    """Levels from -2^(b - 1) to 2^(b - 1) - 1, and factors likewise.

    Attributes
    ----------
    factors : IntegerLevels
        The factors that a sub-block may have.
    apart : int
        How far apart the factors are that are tried.
    """

    columns: ClassVar = SUPER
    sub: ClassVar = 16
    levels: IntegerLevels
    factors: ClassVar[IntegerLevels]
    apart: ClassVar[int]

    steps: ClassVar = (0, -1, 1, -2, 2, -3, 3)  # from the factor that a search found

    def open(self, x: Floats, w: Floats) -> Floats:
        subs = [slice(at, at + self.sub) for at in range(0, SUPER, self.sub)]
        scales = np.stack([search_scale(x[sub], w[sub], self.levels) for sub in subs])
        scale = search_scale(scales, summed(w, self.sub), self.factors)
        return np.stack([as_halves(scale), np.zeros_like(scale)])

    def trials(self, opened: Floats, x: Floats, w: Floats) -> Floats:
        factor = nearest(search_scale(x, w, self.levels) * inverse(opened[0]))
        steps = self.apart * np.array(self.steps, np.float32)[:, None]
        tried = clip(factor + steps, self.factors.first, self.factors.last)
        return np.stack([tried, np.zeros_like(tried)], axis=1)

    def value(self, opened: Floats, part: int, stored: Floats) -> Floats:
        return opened[0] * stored if part == 0 else np.zeros_like(stored)

    def representable(self, opened: Floats, part: int, value: Floats) -> Floats:
        return clip(nearest(value * inverse(opened[0])), self.factors.first, self.factors.last)


def summed(w: Floats, sub: int) -> Floats:
    """Sum up the weights of each sub-block, column by column.

    Parameters
    ----------
    w : (columns,) float32
        Weights of squared errors.
    sub : int
        Columns of a sub-block.

    Returns
    -------
    (columns / sub,) float32
        Their sums.
    """
    sums = np.zeros(len(w) // sub, np.float32)
    for column in w.reshape(-1, sub).T:
        sums = sums + column
    return sums
