"""Q4_K: weight = code * scale - minimum, codes of 4 bits."""

from __future__ import annotations

from typing import ClassVar

from pyquant.models.tensor_type import TensorType as Type
from tests.twins.formats.k_format import KFormat
from tests.twins.scale_search import IntegerLevels


class Q4_K(KFormat):
    """Codes of 4 bits."""

    type: ClassVar = Type.Q4_K
    levels = IntegerLevels(0, 15)
