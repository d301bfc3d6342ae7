"""Multiply weights of a tensor row by row, by the scales of their blocks: codes stay as they are."""

from __future__ import annotations

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

from pyquant.models.tensor import Tensor
from pyquant.models.tensor_type import TensorType as Type

# Where a block has the float16 numbers that its weights are multiples of, or a minimum is: bytes from its
# begin.
SCALES = {
    Type.Q4_0: (0,), Type.Q4_1: (0, 2), Type.Q5_0: (0,), Type.Q5_1: (0, 2), Type.Q8_0: (0,),
    Type.Q2_K: (80, 82), Type.Q3_K: (108,), Type.Q4_K: (0, 2), Type.Q5_K: (0, 2), Type.Q6_K: (208,),
    Type.IQ1_S: (0,), Type.IQ2_XXS: (0,), Type.IQ2_XS: (0,), Type.IQ2_S: (0,), Type.IQ3_XXS: (0,),
    Type.IQ3_S: (0,), Type.IQ4_NL: (0,), Type.IQ4_XS: (0,), Type.TQ1_0: (52,), Type.TQ2_0: (64,),
}  # fmt: skip


def has_scales(tensor: Tensor) -> bool:
    """Say whether its rows can be multiplied by any factor near 1."""
    return tensor.type in SCALES or tensor.type in (Type.F32, Type.F16)


def times_rows(tensor: Tensor, factors: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Give a tensor's bytes with each row multiplied, to the nearest that its scales can say.

    factors: (n_rows,), or of a vector (n_weights,).
    Returns (n_rows, row_bytes).
    """
    stored = tensor.stored_rows().copy()
    if tensor.type in (Type.F32, Type.F16):
        weights = stored.view(np.float32 if tensor.type == Type.F32 else np.float16)
        weights[:] = weights * (factors if len(stored) == 1 else factors[:, None])
        return stored
    n_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(tensor.type)][1]
    blocks = stored.reshape(len(stored), -1, n_bytes)
    for begin in SCALES[tensor.type]:
        scales = np.ascontiguousarray(blocks[:, :, begin : begin + 2]).view(np.float16)
        blocks[:, :, begin : begin + 2] = (scales * factors[:, None, None]).astype(np.float16).view(np.uint8)
    return stored
