"""Name the types whose rows llama.cpp interleaves on this CPU, so that prompts are read faster."""

from __future__ import annotations

from pyquant.machine.cpu import cpu_flags
from pyquant.models.tensor_type import TensorType as Type

# Types that ggml-cpu/repack.cpp of the vendored llama.cpp interleaves, by what it asks of the CPU.
BY_FLAG = {
    "avx2": (Type.Q4_0, Type.Q4_K, Type.IQ4_NL, Type.MXFP4),
    "avx512f": (Type.Q2_K,),
    "asimddp": (
        Type.Q4_0, Type.Q4_K, Type.Q5_K, Type.Q6_K, Type.IQ4_NL, Type.MXFP4, Type.Q8_0,
    ),
}  # fmt: skip


def interleaved() -> set[Type]:
    """Give the types; none where the system does not say what the CPU can."""
    flags = cpu_flags()
    return {type_ for flag, types in BY_FLAG.items() if flag in flags for type_ in types}
