"""Interface of block formats: the numpy twin of what csrc/gptq asks of one.

Arrays have columns first and rows last, as in `tests.twins.scale_search`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pyquant.models.tensor_type import TensorType as Type
from tests.twins.scale_search import SUB, Floats, Levels, search_scale

SUPER = 256  # columns of a super-block, which share the scale of their scales

BY_TYPE: dict[Type, type[Format]] = {}  # the format of each GGML type, filled by its file


class Format(ABC):
    """Says which scales a block may have and how the block is stored.

    The weight of a code is scale * level - minimum. A *part* is one of the two: 0 is the scale, 1 the
    minimum. A subclass that sets `type` is the format of that GGML type; it is found by being in this
    package, and it is built without arguments.

    Attributes
    ----------
    type : Type
        GGML type whose blocks the format makes. Not set by formats that other settings choose.
    columns : int
        Columns of a block.
    sub : int
        Columns of a sub-block, which share a scale: 32 or 16.
    parts : int
        How many parts may be chosen for a sub-block: 0, 1 or 2.
    levels : Levels
        What codes stand for, in multiples of the scale.
    """

    type: ClassVar[Type]
    columns: ClassVar[int] = SUB
    sub: ClassVar[int] = SUB
    parts: ClassVar[int] = 1
    levels: Levels

    def __init_subclass__(cls) -> None:
        if "type" in vars(cls):
            BY_TYPE[cls.type] = cls

    def open(self, x: Floats, w: Floats) -> Floats:
        """Choose what all columns of a block share, from what is known when the block is entered.

        Parameters
        ----------
        x : (columns, n_rows) float32
            Weights, less the errors passed on so far.
        w : (columns,) float32
            Weights of squared errors.

        Returns
        -------
        (2, n_rows) float32
            Scale of scales and scale of minima. Zeros where blocks share nothing.
        """
        return np.zeros((2, x.shape[1]), np.float32)

    @abstractmethod
    def trials(self, opened: Floats, x: Floats, w: Floats) -> Floats:
        """List what may be stored for a sub-block, the likeliest first.

        Parameters
        ----------
        opened : (2, n_rows) float32
            What `open` returned.
        x : (sub, n_rows) float32
            Weights, less the errors passed on so far.
        w : (sub,) float32
            Weights of squared errors.

        Returns
        -------
        (n_trials, 2, n_rows) float32
            Parts as the file stores them.
        """

    def value(self, opened: Floats, part: int, stored: Floats) -> Floats:
        """Compute the scale, or the minimum, from what is stored for it.

        Parameters
        ----------
        opened : (2, n_rows) float32
            What `open` returned.
        part : int
            0 for the scale, 1 for the minimum.
        stored : (..., n_rows) float32
            The part as the file stores it.

        Returns
        -------
        (..., n_rows) float32
            Its value.
        """
        return stored if part < self.parts or part == 0 else np.zeros_like(stored)

    def representable(self, opened: Floats, part: int, value: Floats) -> Floats:
        """Choose what to store for a wanted value: the nearest there is.

        Parameters
        ----------
        opened : (2, n_rows) float32
            What `open` returned.
        part : int
            0 for the scale, 1 for the minimum.
        value : (n_rows,) float32
            The wanted value.

        Returns
        -------
        (n_rows,) float32
            The part as the file stores it.
        """
        return as_halves(value)

    @abstractmethod
    def store(self, opened: Floats, stored: Floats, codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Make the bytes of a block.

        Parameters
        ----------
        opened : (2, n_rows) float32
            What `open` returned.
        stored : (n_subs, 2, n_rows) float32
            Parts of each sub-block, as the file stores them.
        codes : (columns, n_rows) uint8
            Codes of the block.

        Returns
        -------
        (n_rows, n_bytes) uint8
            The block of each row.
        """


class OneScale(Format):
    """A block of 32 columns with one fp16 scale, the best one for it.

    Twin of csrc/gptq/formats/one_scale.h.
    """

    factors: ClassVar = (1, 0.97, 1.03, 0.94, 1.06, 0.91, 1.09)  # on the scale that a search found

    def trials(self, opened: Floats, x: Floats, w: Floats) -> Floats:
        scales = as_halves(search_scale(x, w, self.levels) * np.array(self.factors, np.float32)[:, None])
        return np.stack([scales, np.zeros_like(scales)], axis=1)

    def store(self, opened: Floats, stored: Floats, codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return np.hstack([halves(stored[0, 0]), self.pack(codes.T)])

    @abstractmethod
    def pack(self, codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Make the bytes that follow the scale.

        Parameters
        ----------
        codes : (n_rows, 32) uint8
            Codes of the block of each row.

        Returns
        -------
        (n_rows, n_bytes) uint8
            Their bytes.
        """


def nibbles(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Store the low 4 bits of 32 codes: byte j holds code j in its low half and code j + 16 in its high one.

    Parameters
    ----------
    codes : (n_rows, 32) uint8
        Codes of a block of each row.

    Returns
    -------
    (n_rows, 16) uint8
        Their bytes.
    """
    low, high = codes[:, : SUB // 2] & np.uint8(15), codes[:, SUB // 2 :] & np.uint8(15)
    return low | high << np.uint8(4)


def five_bits(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Store 32 codes of 5 bits: a word that has the fifth bit of code k at bit k, then nibbles.

    Parameters
    ----------
    codes : (n_rows, 32) uint8
        Codes of a block of each row.

    Returns
    -------
    (n_rows, 20) uint8
        Their bytes.
    """
    fifth = np.packbits(codes >> np.uint8(4), axis=1, bitorder="little")
    return np.hstack([fifth, nibbles(codes)])


def two_bits(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Store the low 2 bits of 256 codes: 128 columns in 32 bytes, 32 columns in 2 bits of each.

    Parameters
    ----------
    codes : (256, n_rows) uint8
        Codes of a block.

    Returns
    -------
    (n_rows, 64) uint8
        Their bytes.
    """
    low = (codes & np.uint8(3)).reshape(2, 4, SUB, -1)
    shifted = [low[:, part] << np.uint8(2 * part) for part in range(4)]
    return np.bitwise_or.reduce(shifted).reshape(2 * SUB, -1).T


def as_halves(x: Floats) -> Floats:
    """Round to the nearest fp16; returns float32 of the same shape."""
    return x.astype(np.float16).astype(np.float32)


def halves(x: Floats) -> NDArray[np.uint8]:
    """Store numbers (n_rows,) as fp16; returns (n_rows, 2) uint8."""
    return as_bytes(x.astype(np.float16))


def as_bytes(numbers: NDArray) -> NDArray[np.uint8]:
    """Turn numbers (n_rows,) into their bytes, (n_rows, itemsize) uint8."""
    return np.ascontiguousarray(numbers)[:, None].view(np.uint8)
