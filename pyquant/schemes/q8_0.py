"""Q8_0 as GGML makes it: codes are the values."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from gguf import LlamaFileType

from pyquant.schemes.base import Scheme, grid_codes
from pyquant.schemes.mode import CountCodes, Mode


def q8_0() -> Scheme:
    """Stock Q8_0."""
    return Scheme("q8_0", "q8_0", values=grid_codes(), fold=np.arange(256).astype(np.uint8))


class Q8_0(Mode):
    """GGML's Q8_0."""

    name: ClassVar[str] = "q8_0"
    file_type: ClassVar[LlamaFileType] = LlamaFileType.MOSTLY_Q8_0

    def scheme(self, q8_0_codes: CountCodes) -> Scheme:
        return q8_0()
