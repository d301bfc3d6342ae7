"""Numpy twins of csrc/compensate's formats: which scales there are, and how blocks become bytes.

Arrays are those of reference_search.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from pyquant.models.codebook import IQ4_NL_VALUES
from pyquant.models.tensor_type import TensorType as Type
from pyquant.reference.kernels import store_q4_t, store_q8_0
from pyquant.reference.scale_search import (
    SUB,
    Floats,
    IntegerLevels,
    Levels,
    TableLevels,
    clip,
    inverse,
    nearest,
    search_scale,
    search_scale_and_minimum,
)

SUPER = 256  # columns that share the scale of their scales

# Factors on the scale that a search found, or steps from it, that are tried with errors passed on.
BLOCK_TRIALS = (1, 0.97, 1.03, 0.94, 1.06, 0.91, 1.09)
XS_TRIALS = (0, -1, 1, -2, 2)
K_TRIALS = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1), (1, -1), (-1, 1))


class Format(Protocol):
    """How scales are found and blocks are stored.

    A part is a scale (0) or a minimum (1). columns: of a block. parts: how many may be chosen.
    """

    columns: int
    parts: int
    levels: Levels

    def open(self, x: Floats, w: Floats) -> Floats:
        """(2, n_rows): what all of a block's columns share, by what is known of them when it is entered."""
        raise NotImplementedError

    def trials(self, opened: Floats, x: Floats, w: Floats) -> Floats:
        """(n_trials, 2, n_rows): what may be stored for a sub-block, the likeliest first."""
        raise NotImplementedError

    def value(self, opened: Floats, part: int, stored: Floats) -> Floats:
        """(..., n_rows): of the scale, or of the minimum, that is stored so."""
        raise NotImplementedError

    def representable(self, opened: Floats, part: int, value: Floats) -> Floats:
        """(n_rows,): what is stored for the nearest."""
        raise NotImplementedError

    def store(self, opened: Floats, stored: Floats, codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """(n_rows, n_bytes) of what is stored for sub-blocks, (n_subs, 2, n_rows), and codes
        (columns, n_rows)."""
        raise NotImplementedError


class _OneScale:
    """Of blocks of 32 columns, an fp16."""

    columns: ClassVar = SUB

    def open(self, x, w):
        return np.zeros((2, x.shape[1]), np.float32)

    def value(self, opened, part, stored):
        return stored if part == 0 else np.zeros_like(stored)

    def representable(self, opened, part, value):
        return _as_halves(value)


@dataclass(frozen=True)
class BlockFormat(_OneScale):
    """pack: of scales (n_rows,) and codes (n_rows, 32), the bytes."""

    parts: ClassVar = 1
    levels: Levels
    pack: Callable[[NDArray[np.float16], NDArray[np.uint8]], NDArray[np.uint8]]

    def trials(self, opened, x, w):
        tried = np.array(BLOCK_TRIALS, np.float32)[:, None]
        scales = _as_halves(search_scale(x, w, self.levels) * tried)
        return np.stack([scales, np.zeros_like(scales)], axis=1)

    def store(self, opened, stored, codes):
        return self.pack(stored[0, 0].astype(np.float16), codes.T)


@dataclass(frozen=True)
class UniformFormat(_OneScale):
    """One fp16 scale for a whole matrix, in blocks of Q8_0; in blocks that do not fit its first double by
    which they do, with room for what is passed on."""

    parts: ClassVar = 0
    levels: ClassVar = IntegerLevels(-127, 127)
    step: np.float16

    def trials(self, opened, x, w):
        largest, scale = np.abs(x).max(axis=0), np.full(x.shape[1], self.step, np.float32)
        while (grows := (largest > 112 * scale) & (scale < 32768)).any():
            scale[grows] *= 2
        return np.stack([_as_halves(scale), np.zeros_like(scale)])[None]

    def store(self, opened, stored, codes):
        return store_q8_0(stored[0, 0].astype(np.float16), (codes.T - np.uint8(127)).view(np.int8))


class Iq4XsFormat:
    """An fp16 scale for 256 columns and a factor of -32..31 on it for each 32."""

    columns = SUPER
    parts = 1
    levels = TableLevels(IQ4_NL_VALUES, np.arange(16, dtype=np.uint8))

    def open(self, x, w):
        extreme = np.zeros_like(x[0])
        for at in range(0, SUPER, SUB):
            scale = search_scale(x[at : at + SUB], w[at : at + SUB], self.levels)
            extreme = np.where(np.abs(scale) > np.abs(extreme), scale, extreme)
        return np.stack([_as_halves(extreme / np.float32(-32)), np.zeros_like(extreme)])

    def trials(self, opened, x, w):
        factor = nearest(search_scale(x, w, self.levels) * inverse(opened[0]))
        tried = clip(factor + np.array(XS_TRIALS, np.float32)[:, None], -32, 31)
        return np.stack([tried, np.zeros_like(tried)], axis=1)

    def value(self, opened, part, stored):
        return opened[0] * stored if part == 0 else np.zeros_like(stored)

    def representable(self, opened, part, value):
        return clip(nearest(value * inverse(opened[0])), -32, 31)

    def store(self, opened, stored, codes):
        factor = (stored[:, 0] + 32).astype(np.uint16)
        high = sum((factor[sub] >> 4) << 2 * sub for sub in range(len(factor))).astype(np.uint16)
        low = ((factor[0::2] & 15) | (factor[1::2] & 15) << 4).astype(np.uint8).T
        n_rows = codes.shape[1]
        blocks = codes.T.reshape(n_rows, -1, 2, SUB // 2)
        nibbles = blocks[:, :, 0] | blocks[:, :, 1] << 4
        return np.hstack([_halves(opened[0]), _bytes(high), low, nibbles.reshape(n_rows, -1)])


class KFormat:
    """Q4_K and Q5_K: fp16 scales of scales and of minima for 256 columns, a factor of 0..63 on either
    for each 32."""

    columns = SUPER
    parts = 2

    def __init__(self, n_bits: int) -> None:
        self._highest = 2**n_bits - 1
        self.levels = IntegerLevels(0, self._highest)

    def open(self, x, w):
        largest = np.zeros((2, x.shape[1]), np.float32)
        for at in range(0, SUPER, SUB):
            found = search_scale_and_minimum(x[at : at + SUB], w[at : at + SUB], self._highest)
            largest = np.where(largest > found, largest, found)
        return _as_halves(largest / np.float32(63))

    def trials(self, opened, x, w):
        found = search_scale_and_minimum(x, w, self._highest)
        tried = [
            clip(self.representable(opened, part, found[part]) + np.array(steps, np.float32)[:, None], 0, 63)
            for part, steps in enumerate(zip(*K_TRIALS))
        ]
        return np.stack(tried, axis=1)

    def value(self, opened, part, stored):
        return opened[part] * stored

    def representable(self, opened, part, value):
        factor = value * inverse(opened[part])
        return clip(nearest(np.where(factor < 63, factor, np.float32(63))), 0, 63)

    def store(self, opened, stored, codes):
        s, m = stored.astype(np.uint8).swapaxes(0, 1)
        # 6 bits each: 4 + 4 whole ones, then 4 + 4 in two parts
        packed = [s[:4] | (s[4:] >> 4) << 6, m[:4] | (m[4:] >> 4) << 6, (s[4:] & 15) | (m[4:] & 15) << 4]
        blocks = codes.reshape(-1, SUB, codes.shape[1])
        high = [sum((blocks[sub] >> 4) << sub for sub in range(len(blocks)))] if self._highest > 15 else []
        low = [(blocks[sub] & 15) | (blocks[sub + 1] & 15) << 4 for sub in range(0, len(blocks), 2)]
        return np.hstack([_halves(opened[0]), _halves(opened[1]), np.vstack([*packed, *high, *low]).T])


def _as_halves(x: Floats) -> Floats:
    return x.astype(np.float16).astype(np.float32)


def _halves(x: Floats) -> NDArray[np.uint8]:
    return _bytes(x.astype(np.float16))


def _bytes(numbers: NDArray) -> NDArray[np.uint8]:
    return np.ascontiguousarray(numbers)[:, None].view(np.uint8)


def table_format(container: Type, values: NDArray[np.int8], codes: NDArray[np.uint8]) -> BlockFormat:
    """Of blocks with one scale (Q4_0, Q8_0 or Q4_T) whose codes stand for ascending values, (n,) each."""
    return BlockFormat(TableLevels(values, codes), _pack_bytes if container is Type.Q8_0 else store_q4_t)


def _pack_bytes(scales: NDArray[np.float16], codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return store_q8_0(scales, np.ascontiguousarray(codes).view(np.int8))


FORMATS: dict[Type, Format] = {
    Type.Q4_0: BlockFormat(IntegerLevels(-8, 7), store_q4_t),
    Type.IQ4_NL: table_format(Type.IQ4_NL, IQ4_NL_VALUES, np.arange(16, dtype=np.uint8)),
    Type.IQ4_XS: Iq4XsFormat(),
    Type.Q4_K: KFormat(4),
    Type.Q5_K: KFormat(5),
}
