"""Blocks as they are stored, and what they hold: twin of csrc/kernels/block.h."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyquant.models.tensor_type import TensorType as Type

BLOCK = 32

HALF = BLOCK // 2


def store_q4_0(scales: NDArray[np.float16], values: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Make the bytes of Q4_0 blocks, GGML's `block_q4_0`.

    Byte j of the codes holds weight j in its low nibble and weight j + 16 in its high one.

    Parameters
    ----------
    scales : (n,) float16
    values : (n, 32) int8
        From -8 to 7.

    Returns
    -------
    (n, 18) uint8
    """
    nibbles = (values + 8).astype(np.uint8)
    codes = nibbles[:, :HALF] | nibbles[:, HALF:] << 4
    return np.hstack([scales[:, None].view(np.uint8), codes])


def store_q8_0(scales: NDArray[np.float16], values: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Make the bytes of Q8_0 blocks, GGML's `block_q8_0`.

    Parameters
    ----------
    scales : (n,) float16
    values : (n, 32) int8

    Returns
    -------
    (n, 34) uint8
    """
    return np.hstack([scales[:, None].view(np.uint8), values.view(np.uint8)])


def nibbles(blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Read the stored codes of blocks of Q4_0, IQ4_NL or Q4_T.

    Parameters
    ----------
    blocks : (n, 18) uint8

    Returns
    -------
    (n, 32) uint8
        From 0 to 15.
    """
    return np.hstack([blocks[:, 2:] & 15, blocks[:, 2:] >> 4])


def load_q4_0(blocks: NDArray[np.uint8]) -> tuple[NDArray[np.float16], NDArray[np.int8]]:
    """Read the scales and values of Q4_0 blocks.

    Parameters
    ----------
    blocks : (n, 18) uint8

    Returns
    -------
    scales : (n,) float16
    values : (n, 32) int8
    """
    return scales_of(blocks), nibbles(blocks).astype(np.int8) - np.int8(8)


def load_q8_0(blocks: NDArray[np.uint8]) -> tuple[NDArray[np.float16], NDArray[np.int8]]:
    """Read the scales and values of Q8_0 blocks.

    Parameters
    ----------
    blocks : (n, 34) uint8

    Returns
    -------
    scales : (n,) float16
    values : (n, 32) int8
    """
    return scales_of(blocks), blocks[:, 2:].view(np.int8)


def store_q4_t(scales: NDArray[np.float16], codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Make the bytes of Q4_T blocks, which have Q4_0's layout and hold codes in place of values.

    Parameters
    ----------
    scales : (n,) float16
    codes : (n, 32) uint8
        From 0 to 15.

    Returns
    -------
    (n, 18) uint8
    """
    return store_q4_0(scales, codes.astype(np.int8) - np.int8(8))


def decode_table(table: NDArray[np.int8], blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Compute the weights of Q4_T blocks: the table's value of the code, times the scale.

    Parameters
    ----------
    table : (16,) int8
        What the codes stand for.
    blocks : (n, 18) uint8

    Returns
    -------
    (n, 32) float32
    """
    return table[nibbles(blocks)].astype(np.float32) * scales_of(blocks)[:, None].astype(np.float32)


def expand(table: NDArray[np.int8], stock: Type, blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Turn Q4_T blocks into stock blocks of the same scales and values.

    Parameters
    ----------
    table : (16,) int8
        What the codes stand for.
    stock : Type
        Q4_0 or Q8_0.
    blocks : (n, 18) uint8

    Returns
    -------
    (n, n_bytes) uint8
        Blocks of the stock type.
    """
    return STORE[stock](scales_of(blocks), table[nibbles(blocks)])


def decode(storage: Type, blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Compute the weights of stored blocks: value times scale, in float32.

    Parameters
    ----------
    storage : Type
        Q4_0 or Q8_0.
    blocks : (n, n_bytes) uint8

    Returns
    -------
    (n, 32) float32
    """
    scales, values = LOAD[storage](blocks.reshape(-1, BLOCK_BYTES[storage]))
    return values.astype(np.float32) * scales[:, None].astype(np.float32)


def scales_of(blocks: NDArray[np.uint8]) -> NDArray[np.float16]:
    return np.ascontiguousarray(blocks[:, :2]).view(np.float16)[:, 0]


STORE = {Type.Q4_0: store_q4_0, Type.Q8_0: store_q8_0}

LOAD = {Type.Q4_0: load_q4_0, Type.Q8_0: load_q8_0}

BLOCK_BYTES = {Type.Q4_0: 18, Type.Q8_0: 34, Type.Q4_T: 18}
