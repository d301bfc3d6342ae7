"""List the layout of each type's blocks.

A type that is not listed is packed too, as bytes of no known meaning. A pqz file holds the layouts that it
was written with, so older files stay readable when a layout here changes.
"""

from __future__ import annotations

from pyquant.models.pqz.block_layout import Field, Layout
from pyquant.models.tensor_type import TensorType as Type


def codes(length: int, bits: int) -> Layout:
    """Codes of `bits` bits each, `length` bytes of them."""
    return (Field("codes", length, bits),)


def scales(length: int) -> Layout:
    """Small integers that scale parts of a block."""
    return (Field("numbers", length),)


def number(length: int) -> Layout:
    """One number: its bytes, lowest first, each in a stream of its own, as only the high ones repeat."""
    return (Field("numbers", 1),) * length


half = number(2)

# Fields are in the order of the members of GGML's blocks (ggml-common.h).
LAYOUTS: dict[Type, Layout] = {
    Type.F32: number(4),
    Type.F16: number(2),
    Type.BF16: number(2),
    Type.F64: number(8),
    Type.I16: number(2),
    Type.I32: number(4),
    Type.I64: number(8),
    Type.Q4_0: half + codes(16, 4),
    Type.Q4_T: half + codes(16, 4),
    Type.Q4_1: half + half + codes(16, 4),
    Type.Q5_0: half + codes(4, 1) + codes(16, 4),
    Type.Q5_1: half + half + codes(4, 1) + codes(16, 4),
    Type.Q8_0: half + codes(32, 8),
    Type.Q2_K: scales(16) + codes(64, 2) + half + half,
    Type.Q3_K: codes(32, 1) + codes(64, 2) + scales(12) + half,
    Type.Q4_K: half + half + scales(12) + codes(128, 4),
    Type.Q5_K: half + half + scales(12) + codes(32, 1) + codes(128, 4),
    Type.Q6_K: codes(128, 4) + codes(64, 2) + scales(16) + half,
    Type.IQ1_S: half + codes(32, 8) + codes(16, 8),
    Type.IQ1_M: codes(32, 8) + codes(16, 8) + scales(8),
    Type.IQ2_XXS: half + codes(64, 8),
    Type.IQ2_XS: half + codes(64, 8) + scales(8),
    Type.IQ2_S: half + codes(64, 8) + codes(8, 8) + scales(8),
    Type.IQ3_XXS: half + codes(96, 8),
    Type.IQ3_S: half + codes(64, 8) + codes(8, 8) + codes(32, 8) + scales(4),
    Type.IQ4_NL: half + codes(16, 4),
    Type.IQ4_XS: half + scales(2) + scales(4) + codes(128, 4),
    Type.TQ1_0: codes(48, 8) + codes(4, 8) + half,
    Type.TQ2_0: codes(64, 2) + half,
    Type.MXFP4: scales(1) + codes(16, 4),
    Type.NVFP4: scales(4) + codes(32, 4),
}
