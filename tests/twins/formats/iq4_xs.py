"""IQ4_XS: super-blocks of 256 columns with an fp16 scale, and a factor of -32..31 on it for each 32."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pyquant.models.tensor_type import TensorType as Type
from tests.twins.formats.base import SUPER, Format, as_bytes, as_halves, halves, nibbles
from tests.twins.formats.iq4_nl import IQ4_LEVELS
from tests.twins.scale_search import SUB, Bytes, Floats, clip, inverse, nearest, search_scale


class IQ4_XS(Format):
    """Codes of IQ4_NL's table."""

    type: ClassVar = Type.IQ4_XS
    columns: ClassVar = SUPER
    levels = IQ4_LEVELS

    steps: ClassVar = (0, -1, 1, -2, 2)  # from the factor that a search found

    def open(self, x: Floats, w: Floats) -> Floats:
        extreme = np.zeros_like(x[0])
        for at in range(0, SUPER, SUB):
            scale = search_scale(x[at : at + SUB], w[at : at + SUB], self.levels)
            extreme = np.where(np.abs(scale) > np.abs(extreme), scale, extreme)
        return np.stack([as_halves(extreme / np.float32(-32)), np.zeros_like(extreme)])

    def trials(self, opened: Floats, x: Floats, w: Floats) -> Floats:
        factor = nearest(search_scale(x, w, self.levels) * inverse(opened[0]))
        tried = clip(factor + np.array(self.steps, np.float32)[:, None], -32, 31)
        return np.stack([tried, np.zeros_like(tried)], axis=1)

    def value(self, opened: Floats, part: int, stored: Floats) -> Floats:
        return opened[0] * stored if part == 0 else np.zeros_like(stored)

    def representable(self, opened: Floats, part: int, value: Floats) -> Floats:
        return clip(nearest(value * inverse(opened[0])), -32, 31)

    def store(self, opened: Floats, stored: Floats, codes: Bytes) -> Bytes:
        factor = (stored[:, 0] + 32).astype(np.uint16)
        high = np.bitwise_or.reduce([(row >> 4) << 2 * sub for sub, row in enumerate(factor)])
        low = ((factor[0::2] & 15) | (factor[1::2] & 15) << 4).astype(np.uint8).T
        subs = [nibbles(codes[at : at + SUB].T) for at in range(0, SUPER, SUB)]
        return np.hstack([halves(opened[0]), as_bytes(high), low, *subs])
