"""Q5_K: weight = code * scale - minimum, codes of 5 bits."""

from __future__ import annotations

from typing import ClassVar

from pyquant.models.tensor_type import TensorType as Type
from tests.twins.formats.k_format import KFormat
from tests.twins.scale_search import IntegerLevels


class Q5_K(KFormat):
    """Codes of 5 bits."""

    type: ClassVar = Type.Q5_K
    levels = IntegerLevels(0, 31)
