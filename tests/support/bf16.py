"""BF16 as gguf-py rounds to it."""

from __future__ import annotations

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quants
from numpy.typing import NDArray


def rounded(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return quants.dequantize(quants.quantize(x, Type.BF16), Type.BF16)
