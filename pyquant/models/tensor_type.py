"""The types of tensors: GGML's, and the one that the patched library adds to them."""

from __future__ import annotations

from enum import IntEnum

from gguf import GGMLQuantizationType

from pyquant import _core

# Members equal those of gguf's enumeration, which has no room for another.
TensorType = IntEnum(
    "TensorType", {kind.name: kind.value for kind in GGMLQuantizationType} | {"Q4_T": _core.TYPE_Q4_T}
)
