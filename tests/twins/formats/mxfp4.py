"""MXFP4: blocks of 32 columns, whose scale is a power of two (E8M0)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pyquant.models.tensor_type import TensorType as Type
from tests.twins.formats.base import nibbles
from tests.twins.formats.fp4 import Fp4Format
from tests.twins.scale_search import Bytes, Floats


class MXFP4(Fp4Format):
    """A scale of 8 bits, all of them the exponent's; the lowest codes stand for subnormal scales."""

    type: ClassVar = Type.MXFP4
    mantissa, exponent, lowest, highest = 0, -1, 2, 254

    def store(self, opened: Floats, stored: Floats, codes: Bytes) -> Bytes:
        return np.hstack([stored[0, 0].astype(np.uint8)[:, None], nibbles(codes.T)])
