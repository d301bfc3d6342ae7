"""Q2_K: weight = code * scale - minimum, super-blocks of 256 columns with both for each 16."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pyquant.models.tensor_type import TensorType as Type
from tests.twins.formats.base import SUPER, as_halves, halves, two_bits
from tests.twins.formats.signed_factors import summed
from tests.twins.formats.unsigned_factors import UnsignedFactors
from tests.twins.scale_search import (
    Bytes,
    Floats,
    IntegerLevels,
    search_scale,
    search_scale_and_minimum,
)


class Q2_K(UnsignedFactors):
    """Codes of 2 bits, fp16 scales of scales and of minima, and a factor of 0..15 on either."""

    type: ClassVar = Type.Q2_K
    sub: ClassVar = 16
    levels = IntegerLevels(0, 3)
    factors = IntegerLevels(0, 15)

    def open(self, x: Floats, w: Floats) -> Floats:
        subs = [slice(at, at + self.sub) for at in range(0, SUPER, self.sub)]
        best = [search_scale_and_minimum(x[sub], w[sub], self.levels) for sub in subs]
        scales, minima = (np.stack(part) for part in zip(*best))
        weights = summed(w, self.sub)
        return as_halves(np.stack([search_scale(part, weights, self.factors) for part in (scales, minima)]))

    def store(self, opened: Floats, stored: Floats, codes: Bytes) -> Bytes:
        scales, minima = stored.astype(np.uint8).swapaxes(0, 1)
        return np.hstack([(scales | minima << 4).T, two_bits(codes), halves(opened[0]), halves(opened[1])])
