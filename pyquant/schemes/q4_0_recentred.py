"""Q4_0 with its codes shifted so that 0, the most common value, is code 0.

As nibbles these are two's complement (`code ^ 8`); the values, and so the file of type Q4_0,
stay what they are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from gguf import LlamaFileType

from pyquant.schemes.base import Scheme
from pyquant.schemes.mode import CountCodes, TableMode
from pyquant.schemes.q4_0 import q4_0


def q4_0_recentred() -> Scheme:
    """Q4_0 in two's complement codes."""
    stock = q4_0()
    swap = np.arange(16, dtype=np.uint8) ^ np.uint8(8)
    return replace(stock, name="q4_0_recentred", values=stock.values[swap], fold=swap[stock.folding])


class Q4_0Recentred(TableMode):
    """Q4_0 seen through codes -8..7."""

    name: ClassVar[str] = "q4_0_recentred"
    file_type: ClassVar[LlamaFileType] = LlamaFileType.MOSTLY_Q4_0

    def scheme(self, q8_0_codes: CountCodes) -> Scheme:
        return q4_0_recentred()
