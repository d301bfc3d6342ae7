"""Q5_0: weight = (code - 16) * scale."""

from __future__ import annotations

from typing import ClassVar

from pyquant.models.tensor_type import TensorType as Type
from tests.twins.formats.base import OneScale, five_bits
from tests.twins.scale_search import Bytes, IntegerLevels


class Q5_0(OneScale):
    """Codes of 5 bits."""

    type: ClassVar = Type.Q5_0
    levels = IntegerLevels(-16, 15)

    def pack(self, codes: Bytes) -> Bytes:
        return five_bits(codes)
