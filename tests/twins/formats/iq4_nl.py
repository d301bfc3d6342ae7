"""IQ4_NL: weight = table[code] * scale."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pyquant.models.codebook import IQ4_NL_VALUES
from pyquant.models.tensor_type import TensorType as Type
from tests.twins.formats.base import OneScale, nibbles
from tests.twins.scale_search import Bytes, TableLevels

IQ4_LEVELS = TableLevels(IQ4_NL_VALUES, np.arange(16, dtype=np.uint8))


class IQ4_NL(OneScale):
    """Codes of a table of 16 values, in nibbles."""

    type: ClassVar = Type.IQ4_NL
    levels = IQ4_LEVELS

    def pack(self, codes: Bytes) -> Bytes:
        return nibbles(codes)
