"""What the bytes of each type's blocks are, so that those of one meaning are coded together.

A type that is not here is packed too, as bytes that mean nothing. Files say the layouts that they were
written with, so that changing or adding one here changes nothing about older files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.statistics import entropy
from pyquant.tensor_type import TensorType as Type

Content = Literal["codes", "numbers", "text"]


@dataclass(frozen=True)
class Field:
    """The next `length` bytes of a block, a stream of their own. bits: of one symbol in them, 1..8."""

    content: Content
    length: int
    bits: int = 8

    def entropy_bytes(self, counts: NDArray[np.uint64]) -> float:
        """What symbols cost at least if each is coded by itself. counts: (256,) of the stream's bytes."""
        symbols = np.zeros(1 << self.bits, np.uint64)
        for shift in range(0, 8, self.bits):
            np.add.at(symbols, (np.arange(256) >> shift) % len(symbols), counts)
        return entropy(symbols) * float(symbols.sum()) / 8


Layout = tuple[Field, ...]


def codes(length: int, bits: int) -> Layout:
    return (Field("codes", length, bits),)


def scales(length: int) -> Layout:
    """Small integers that scale parts of a block."""
    return (Field("numbers", length),)


def number(length: int) -> Layout:
    """One number: its bytes, lowest first, each in a stream of its own, as only the high ones repeat."""
    return (Field("numbers", 1),) * length


half = number(2)

# In the order of the members of GGML's blocks (ggml-common.h).
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
}
BYTES: Layout = (Field("numbers", 1),)
TEXT: Layout = (Field("text", 1),)  # metadata and vocabulary


def kernel(layout: Layout) -> _core.Layout:
    """The layout as C++ takes it. Raises ValueError if there can be none like it."""
    return _core.Layout([(field.length, getattr(_core.Content, field.content)) for field in layout])
