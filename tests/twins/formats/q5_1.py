"""Q5_1: weight = code * scale - minimum."""

from __future__ import annotations

from typing import ClassVar

from pyquant.models.tensor_type import TensorType as Type
from tests.twins.formats.base import five_bits
from tests.twins.formats.scale_and_minimum import OneScaleAndMinimum
from tests.twins.scale_search import Bytes, IntegerLevels


class Q5_1(OneScaleAndMinimum):
    """Codes of 5 bits."""

    type: ClassVar = Type.Q5_1
    levels = IntegerLevels(0, 31)

    def pack(self, codes: Bytes) -> Bytes:
        return five_bits(codes)
