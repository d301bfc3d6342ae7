"""NVFP4: blocks of 64 columns with a scale of the type UE4M3 for each 16."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pyquant.models.tensor_type import TensorType as Type
from tests.twins.formats.fp4 import Fp4Format
from tests.twins.scale_search import Bytes, Floats


class NVFP4(Fp4Format):
    """Scales from 2^-9 to 448, both halved; 127 is no number, and a scale of 0 is of no use."""

    type: ClassVar = Type.NVFP4
    columns: ClassVar = 64
    sub: ClassVar = 16
    mantissa, exponent, lowest, highest = 3, 119, 1, 126

    def store(self, opened: Floats, stored: Floats, codes: Bytes) -> Bytes:
        low, high = codes.reshape(4, 2, 8, -1).swapaxes(0, 1).reshape(2, 32, -1)
        return np.hstack([stored[:, 0].astype(np.uint8).T, (low | high << np.uint8(4)).T])
