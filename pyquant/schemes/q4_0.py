"""Q4_0 as GGML makes it: codes 0..15 stand for -8..7."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from gguf import LlamaFileType

from pyquant.schemes.base import Scheme, grid_codes
from pyquant.schemes.mode import CountCodes, TableMode


def q4_0() -> Scheme:
    """Stock Q4_0."""
    values = np.arange(-8, 8, dtype=np.int8)
    return Scheme("q4_0", "q4_0", values, fold=(np.clip(grid_codes(), -8, 7) + 8).astype(np.uint8))


class Q4_0(TableMode):
    """GGML's Q4_0."""

    name: ClassVar[str] = "q4_0"
    file_type: ClassVar[LlamaFileType] = LlamaFileType.MOSTLY_Q4_0

    def scheme(self, q8_0_codes: CountCodes) -> Scheme:
        return q4_0()
