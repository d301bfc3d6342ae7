"""The types of tensors: GGML's, and the one that the patched library adds to them."""

from __future__ import annotations

from enum import EnumMeta, IntEnum
from typing import TYPE_CHECKING

from gguf import GGMLQuantizationType

from pyquant import _core

if TYPE_CHECKING:

    class _Names(EnumMeta):
        def __getattr__(cls, name: str) -> TensorType: ...

    class TensorType(IntEnum, metaclass=_Names): ...

else:
    # Members equal those of gguf's enumeration, which has no room for another.
    TensorType = IntEnum(
        "TensorType", {type.name: type.value for type in GGMLQuantizationType} | {"Q4_T": _core.TYPE_Q4_T}
    )
