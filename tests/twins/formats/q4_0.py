"""Q4_0: weight = (code - 8) * scale."""

from __future__ import annotations

from typing import ClassVar

from pyquant.models.tensor_type import TensorType as Type
from tests.twins.formats.base import OneScale, nibbles
from tests.twins.scale_search import Bytes, IntegerLevels


class Q4_0(OneScale):
    """Codes of 4 bits in nibbles."""

    type: ClassVar = Type.Q4_0
    levels = IntegerLevels(-8, 7)

    def pack(self, codes: Bytes) -> Bytes:
        return nibbles(codes)
