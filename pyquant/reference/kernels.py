"""Numpy twins of csrc/kernels, one function for each kernel.

A block is 32 consecutive weights of a row. A twin returns the bits that its kernel returns, also for the
odd input for which GGML's reference quantizers make odd scales and codes. Sums of errors alone may differ
in the last digits, because sums are added in another order. Twins are slow: use them on small arrays.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from pyquant.models.tensor_type import TensorType as Type
from pyquant.schemes.base import Scheme

BLOCK = 32
RUN_BINS = 16  # lengths 1..15, and 16 or more in the last
HALF = BLOCK // 2


def grid_q4_0(x: NDArray[np.float32]) -> tuple[NDArray[np.float16], NDArray[np.int8]]:
    """Quantize blocks by Q4_0's rule.

    The weight of largest magnitude, the first one of equals, becomes -8. Halves round up: 8.5 is added,
    and the fraction of the sum, which is above 0, is cut off.

    Parameters
    ----------
    x : (n, 32) float32
        Blocks of weights.

    Returns
    -------
    scales : (n,) float16
    codes : (n, 32) int8
        From -8 to 7.

    Raises
    ------
    ValueError
        If a block holds an infinity or a NaN, or its scale is beyond fp16. The first such block is named.

    Notes
    -----
    Source: `quantize_row_q4_0_ref` of ggml-quants.c.
    """
    first = np.abs(x).argmax(axis=1, keepdims=True)
    extreme = np.take_along_axis(x, first, axis=1) + np.float32(0)  # -0 + 0 is 0
    d = extreme / np.float32(-8)  # of a block of zeros -0, whose fp16 is 0x8000
    scales = _check(x, d)
    codes = np.trunc(_scaled(x, d, overflow=-8) + np.float32(8.5)).clip(max=15) - 8
    return scales, codes.astype(np.int8)


def grid_q8_0(x: NDArray[np.float32]) -> tuple[NDArray[np.float16], NDArray[np.int8]]:
    """Quantize blocks by Q8_0's rule.

    The largest magnitude becomes 127 or -127. Halves round away from zero, as C's roundf does; a double
    holds the sum that decides this exactly.

    Parameters
    ----------
    x : (n, 32) float32
        Blocks of weights.

    Returns
    -------
    scales : (n,) float16
    codes : (n, 32) int8
        From -127 to 127.

    Raises
    ------
    ValueError
        If a block holds an infinity or a NaN, or its scale is beyond fp16. The first such block is named.

    Notes
    -----
    Source: `quantize_row_q8_0_ref` of ggml-quants.c.
    """
    d = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    scales = _check(x, d)
    scaled = _scaled(x, d, overflow=0).astype(np.float64)
    return scales, np.trunc(scaled + np.copysign(0.5, scaled)).astype(np.int8)


def _scaled(x: NDArray[np.float32], d: NDArray[np.float32], overflow: int) -> NDArray[np.float32]:
    # x times the inverse of d, as upstream has it: the quotient x / d rounds differently. Where d is
    # so small that its inverse is infinite, upstream converts infinities and NaNs to int8, which on
    # x86 stores code 0; `overflow` is the number that ends as that code.
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        inverse = np.where(d != 0, np.float32(1) / d, np.float32(0))
        return np.where(np.isinf(inverse), np.float32(overflow), x * inverse)


def _check(x: NDArray[np.float32], d: NDArray[np.float32]) -> NDArray[np.float16]:
    # Round scales to fp16, to nearest even. ValueError names the first block with an infinity, a NaN or
    # a scale beyond fp16.
    with np.errstate(over="ignore", invalid="ignore"):
        scales = d[:, 0].astype(np.float16)
    bad = ~(np.isfinite(x).all(axis=1) & np.isfinite(scales))
    if bad.any():
        raise ValueError(f"block {bad.argmax()} has no fp16 scale")
    return scales


GRIDS = {"q4_0": grid_q4_0, "q8_0": grid_q8_0}


def fold(scheme: Scheme, codes: NDArray[np.int8]) -> NDArray[np.int8]:
    """Replace grid codes by the values that a scheme stores for them.

    Parameters
    ----------
    scheme : Scheme
        Holds the fold and the values.
    codes : (n, 32) int8
        Grid codes.

    Returns
    -------
    (n, 32) int8
        Values, in multiples of the block's scale.
    """
    return scheme.values[folded_codes(scheme, codes)]


def folded_codes(scheme: Scheme, codes: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Replace grid codes by a scheme's own codes.

    Parameters
    ----------
    scheme : Scheme
        Holds the fold.
    codes : (n, 32) int8
        Grid codes.

    Returns
    -------
    (n, 32) uint8
        Indices of the scheme's table.
    """
    assert scheme.fold is not None, "a scheme whose scales are searched for has no grid"
    return scheme.fold[codes.view(np.uint8)]


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
    return _scales(blocks), nibbles(blocks).astype(np.int8) - np.int8(8)


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
    return _scales(blocks), blocks[:, 2:].view(np.int8)


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
    return table[nibbles(blocks)].astype(np.float32) * _scales(blocks)[:, None].astype(np.float32)


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
    return STORE[stock](_scales(blocks), table[nibbles(blocks)])


def multiply_table(
    table: NDArray[np.int8], blocks: NDArray[np.uint8], x: NDArray[np.uint8]
) -> NDArray[np.float32]:
    """Multiply rows of Q4_T blocks with columns of Q8_0 blocks.

    For every pair of blocks an integer, the sum of 32 products, is multiplied with both scales. These are
    added in float32.

    Parameters
    ----------
    table : (16,) int8
        What the codes of the rows stand for.
    blocks : (n_rows, n, 18) uint8
        Rows of n Q4_T blocks.
    x : (n_columns, n, 34) uint8
        Columns of n Q8_0 blocks.

    Returns
    -------
    (n_columns, n_rows) float32
    """
    n = blocks.shape[1]
    weights = table[nibbles(blocks.reshape(-1, 18))].reshape(-1, n, BLOCK).astype(np.int32)
    scales, codes = load_q8_0(x.reshape(-1, 34))
    integers = np.einsum("rbj,cbj->bcr", weights, codes.reshape(-1, n, BLOCK).astype(np.int32))
    rows = _scales(blocks.reshape(-1, 18)).reshape(-1, n).astype(np.float32)
    columns = scales.reshape(-1, n).astype(np.float32)
    products = np.zeros(integers.shape[1:], np.float32)
    for b in range(n):
        products += integers[b].astype(np.float32) * (rows[None, :, b] * columns[:, None, b])
    return products


def _scales(blocks: NDArray[np.uint8]) -> NDArray[np.float16]:
    return np.ascontiguousarray(blocks[:, :2]).view(np.float16)[:, 0]


STORE = {Type.Q4_0: store_q4_0, Type.Q8_0: store_q8_0}
LOAD = {Type.Q4_0: load_q4_0, Type.Q8_0: load_q8_0}
BLOCK_BYTES = {Type.Q4_0: 18, Type.Q8_0: 34, Type.Q4_T: 18}


def encode(scheme: Scheme, x: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Quantize weights by a scheme.

    Parameters
    ----------
    scheme : Scheme
    x : float32
        Weights of any shape, a multiple of 32 of them.

    Returns
    -------
    (n, n_bytes) uint8
        Stored blocks.

    Raises
    ------
    ValueError
        If a block holds an infinity or a NaN, or its scale is beyond fp16. The first such block is named.
    """
    scales, codes = GRIDS[scheme.grid](x.reshape(-1, BLOCK))
    if scheme.q4_t:
        return store_q4_t(scales, folded_codes(scheme, codes))
    return STORE[scheme.storage](scales, fold(scheme, codes))


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


def code_counts(codes: NDArray[np.uint8], n_codes: int) -> NDArray[np.uint64]:
    """Count how often each stored code occurs.

    Parameters
    ----------
    codes : uint8
        Codes of any shape.
    n_codes : int
        How many codes there are.

    Returns
    -------
    (n_codes,) uint64
    """
    return np.bincount(codes.ravel(), minlength=n_codes).astype(np.uint64)


def zero_runs(codes: NDArray[np.uint8], zero_code: int) -> NDArray[np.uint64]:
    """Count the runs of one code within rows, by their length.

    Parameters
    ----------
    codes : (n_rows, n_per_row) uint8
    zero_code : int
        The code whose runs are counted.

    Returns
    -------
    (16,) uint64
        Runs of length 1 to 15, and of 16 or more.
    """
    runs = np.zeros(RUN_BINS, np.uint64)
    for row in codes == zero_code:
        for is_zero, run in groupby(row):
            if is_zero:
                runs[min(sum(1 for _ in run), RUN_BINS) - 1] += np.uint64(1)
    return runs


def error(x: NDArray[np.float32], y: NDArray[np.float32]) -> dict[str, float]:
    """Measure what became of weights.

    Differences and their squares are float32, as in the kernel; sums are float64.

    Parameters
    ----------
    x, y : float32
        Weights before and after, of one shape.

    Returns
    -------
    dict
        `squared_error`, `squared_weight` (of x), `squared_value` (of y): sums of squares.
        `largest_error` and `largest_error_at`: the largest magnitude of a difference and its flat index, -1
        where there are no weights. `zeros`: how many of y are 0.
    """
    x, y = x.ravel(), y.ravel()
    difference = x - y
    largest = int(np.abs(difference).argmax()) if x.size else -1
    return {
        "squared_error": np.square(difference).sum(dtype=np.float64),
        "squared_weight": np.square(x).sum(dtype=np.float64),
        "squared_value": np.square(y).sum(dtype=np.float64),
        "largest_error": np.abs(difference)[largest] if x.size else 0.0,
        "largest_error_at": largest,
        "zeros": np.count_nonzero(y == 0),
    }


def weighted_error(
    x: NDArray[np.float32], y: NDArray[np.float32], importance: NDArray[np.float32]
) -> dict[str, float]:
    """Sum squares where columns have importances.

    Parameters
    ----------
    x, y : (n, n_per_row) float32
        Rows of weights before and after.
    importance : (n_per_row,) float32
        Weight of each column's squared errors.

    Returns
    -------
    dict
        `weighted_squared_error` and `weighted_squared_weight`, float64.
    """
    weights = importance.astype(np.float64)
    return {
        "weighted_squared_error": (np.square(x - y) * weights).sum(),
        "weighted_squared_weight": (np.square(x) * weights).sum(),
    }


def negative_log_likelihood(logits: NDArray[np.float32], targets: NDArray[np.int32]) -> NDArray[np.float64]:
    """Compute how improbable targets are: log sum exp of a row of logits, less the logit of its target.

    Parameters
    ----------
    logits : (n, n_vocab) float32
    targets : (n,) int32
        Index of each row's token.

    Returns
    -------
    (n,) float64
        In nats.
    """
    largest = logits.max(axis=1, keepdims=True)
    sums = np.exp(logits - largest).sum(axis=1, dtype=np.float64)
    chosen = np.take_along_axis(logits, targets[:, None].astype(np.int64), axis=1)
    return np.log(sums) - (chosen.astype(np.float64) - largest)[:, 0]


def compare_logits(
    base: NDArray[np.float32], logits: NDArray[np.float32], targets: NDArray[np.int32]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Compare the logits of a model with those of its base, token by token.

    Parameters
    ----------
    base, logits : (n, n_vocab) float32
    targets : (n,) int32
        Index of each row's token.

    Returns
    -------
    nll : (n,) float64
        The model's negative log-likelihood of the targets, in nats.
    kld : (n,) float64
        Sum over tokens of p_base log(p_base / p), in nats: the divergence (Kullback and Leibler, 1951).
    same_top : (n,) bool
        Whether both have their largest logit at the same token.
    """

    def log_softmax(x: NDArray[np.float32]) -> NDArray[np.float64]:
        shifted = x.astype(np.float64) - x.max(axis=1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))

    p, q = log_softmax(base), log_softmax(logits)
    nll = -np.take_along_axis(q, targets[:, None].astype(np.int64), axis=1)[:, 0]
    return nll, (np.exp(p) * (p - q)).sum(axis=1), base.argmax(axis=1) == logits.argmax(axis=1)
