"""Q4_1: weight = code * scale - minimum."""

from __future__ import annotations

from typing import ClassVar

from pyquant.models.tensor_type import TensorType as Type
from tests.twins.formats.base import nibbles
from tests.twins.formats.scale_and_minimum import OneScaleAndMinimum
from tests.twins.scale_search import Bytes, IntegerLevels


class Q4_1(OneScaleAndMinimum):
    """Codes of 4 bits."""

    type: ClassVar = Type.Q4_1
    levels = IntegerLevels(0, 15)

    def pack(self, codes: Bytes) -> Bytes:
        return nibbles(codes)
