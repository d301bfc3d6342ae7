"""The kernels as text: a numpy twin of each, to read, to test against and to document with.

Blocks are 32 consecutive weights of a row. A twin gives what its kernel in csrc/kernels gives, bit
for bit, down to the scales and codes that GGML's reference quantizers make of odd input; sums of
errors agree to the last digits, which depend on the order of summation. Twins are for small arrays.
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
    """Blocks (n, 32) to scales (n,) and codes (n, 32) in -8..7; `quantize_row_q4_0_ref`.

    The weight of largest magnitude, the first one of equals, becomes -8. Halves round up: adding 8.5
    makes a number above 0, which is cut off. Raises ValueError as `_check` does.
    """
    first = np.abs(x).argmax(axis=1, keepdims=True)
    extreme = np.take_along_axis(x, first, axis=1) + np.float32(0)  # -0 + 0 is 0
    d = extreme / np.float32(-8)  # of a block of zeros -0, whose fp16 is 0x8000
    scales = _check(x, d)
    codes = np.trunc(_scaled(x, d, overflow=-8) + np.float32(8.5)).clip(max=15) - 8
    return scales, codes.astype(np.int8)


def grid_q8_0(x: NDArray[np.float32]) -> tuple[NDArray[np.float16], NDArray[np.int8]]:
    """Blocks (n, 32) to scales (n,) and codes (n, 32) in -127..127; `quantize_row_q8_0_ref`.

    The largest magnitude becomes 127 or -127. Halves round away from zero, as C's roundf does; a
    double holds the sum that decides this exactly. Raises ValueError as `_check` does.
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
    # The scales as fp16, nearest even. ValueError names the first block with an infinity, a NaN or
    # a scale beyond fp16.
    with np.errstate(over="ignore", invalid="ignore"):
        scales = d[:, 0].astype(np.float16)
    bad = ~(np.isfinite(x).all(axis=1) & np.isfinite(scales))
    if bad.any():
        raise ValueError(f"block {bad.argmax()} has no fp16 scale")
    return scales


GRIDS = {"q4_0": grid_q4_0, "q8_0": grid_q8_0}


def fold(scheme: Scheme, codes: NDArray[np.int8]) -> NDArray[np.int8]:
    """What a scheme makes of grid codes: the values that its storage holds, same shape."""
    return scheme.values[folded_codes(scheme, codes)]


def folded_codes(scheme: Scheme, codes: NDArray[np.int8]) -> NDArray[np.uint8]:
    """What a scheme makes of grid codes: indices of its table, same shape."""
    assert scheme.fold is not None, "a scheme whose scales are searched for has no grid"
    return scheme.fold[codes.view(np.uint8)]


def store_q4_0(scales: NDArray[np.float16], values: NDArray[np.int8]) -> NDArray[np.uint8]:
    """(n,) and (n, 32) in -8..7 to blocks (n, 18) uint8; `block_q4_0`.

    Byte j of the codes holds weight j in its low nibble and weight j + 16 in its high one.
    """
    nibbles = (values + 8).astype(np.uint8)
    codes = nibbles[:, :HALF] | nibbles[:, HALF:] << 4
    return np.hstack([scales[:, None].view(np.uint8), codes])


def store_q8_0(scales: NDArray[np.float16], values: NDArray[np.int8]) -> NDArray[np.uint8]:
    """(n,) and (n, 32) to blocks (n, 34) uint8; `block_q8_0`."""
    return np.hstack([scales[:, None].view(np.uint8), values.view(np.uint8)])


def nibbles(blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Stored codes (n, 32), 0..15, of Q4_0 or IQ4_NL blocks (n, 18)."""
    return np.hstack([blocks[:, 2:] & 15, blocks[:, 2:] >> 4])


def load_q4_0(blocks: NDArray[np.uint8]) -> tuple[NDArray[np.float16], NDArray[np.int8]]:
    """Scales (n,) and values (n, 32) of blocks (n, 18)."""
    return _scales(blocks), nibbles(blocks).astype(np.int8) - np.int8(8)


def load_q8_0(blocks: NDArray[np.uint8]) -> tuple[NDArray[np.float16], NDArray[np.int8]]:
    """Scales (n,) and values (n, 32) of blocks (n, 34)."""
    return _scales(blocks), blocks[:, 2:].view(np.int8)


def store_q4_t(scales: NDArray[np.float16], codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(n,) and codes (n, 32), 0..15, to blocks (n, 18) uint8, laid out as Q4_0's."""
    return store_q4_0(scales, codes.astype(np.int8) - np.int8(8))


def decode_table(table: NDArray[np.int8], blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Q4_T blocks (n, 18) to weights (n, 32): what a table (16,) has for the code, times scale."""
    return table[nibbles(blocks)].astype(np.float32) * _scales(blocks)[:, None].astype(np.float32)


def expand(table: NDArray[np.int8], stock: Type, blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Q4_T blocks (n, 18) to blocks (n, bytes) of the stock type, of the same scales and values."""
    return STORE[stock](_scales(blocks), table[nibbles(blocks)])


def multiply_table(
    table: NDArray[np.int8], blocks: NDArray[np.uint8], x: NDArray[np.uint8]
) -> NDArray[np.float32]:
    """Rows of Q4_T blocks (n_rows, n, 18) times columns of Q8_0 blocks (n_columns, n, 34).

    Returns (n_columns, n_rows): of every block an integer, times both scales, added up in float32.
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
    """Weights, a multiple of 32, to stored blocks (n, bytes); raises ValueError as the grids do."""
    scales, codes = GRIDS[scheme.grid](x.reshape(-1, BLOCK))
    if scheme.q4_t:
        return store_q4_t(scales, folded_codes(scheme, codes))
    return STORE[scheme.storage](scales, fold(scheme, codes))


def decode(storage: Type, blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Stored blocks (n, bytes) to weights (n, 32): value times scale, in float32."""
    scales, values = LOAD[storage](blocks.reshape(-1, BLOCK_BYTES[storage]))
    return values.astype(np.float32) * scales[:, None].astype(np.float32)


def code_counts(codes: NDArray[np.uint8], n_codes: int) -> NDArray[np.uint64]:
    """(n_codes,): how often each stored code occurs."""
    return np.bincount(codes.ravel(), minlength=n_codes).astype(np.uint64)


def zero_runs(codes: NDArray[np.uint8], zero_code: int) -> NDArray[np.uint64]:
    """(16,): runs of `zero_code` of length 1..15 and >= 16 in rows of codes (n_rows, n_per_row)."""
    runs = np.zeros(RUN_BINS, np.uint64)
    for row in codes == zero_code:
        for is_zero, run in groupby(row):
            if is_zero:
                runs[min(sum(1 for _ in run), RUN_BINS) - 1] += np.uint64(1)
    return runs


def error(x: NDArray[np.float32], y: NDArray[np.float32]) -> dict[str, float]:
    """What became of weights x: sums of squares in float64, and the largest single error.

    Differences and squares are float32, as in the kernel; `largest_error_at` is a flat index, -1 if
    there are no weights.
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
    """The sums of squares where columns have importances: rows (n, n_per_row) and (n_per_row,)."""
    weights = importance.astype(np.float64)
    return {
        "weighted_squared_error": (np.square(x - y) * weights).sum(),
        "weighted_squared_weight": (np.square(x) * weights).sum(),
    }


def negative_log_likelihood(logits: NDArray[np.float32], targets: NDArray[np.int32]) -> NDArray[np.float64]:
    """(n,) nats: log sum exp of a row of logits (n, n_vocab) less the logit of its target (n,)."""
    largest = logits.max(axis=1, keepdims=True)
    sums = np.exp(logits - largest).sum(axis=1, dtype=np.float64)
    chosen = np.take_along_axis(logits, targets[:, None].astype(np.int64), axis=1)
    return np.log(sums) - (chosen.astype(np.float64) - largest)[:, 0]


def compare_logits(
    base: NDArray[np.float32], logits: NDArray[np.float32], targets: NDArray[np.int32]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """(n,) each, of rows of logits (n, n_vocab): the model's negative log-likelihood of the targets,
    sum p_base log(p_base / p) in nats, and whether both have their largest logit at one place."""

    def log_softmax(x: NDArray[np.float32]) -> NDArray[np.float64]:
        shifted = x.astype(np.float64) - x.max(axis=1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))

    p, q = log_softmax(base), log_softmax(logits)
    nll = -np.take_along_axis(q, targets[:, None].astype(np.int64), axis=1)[:, 0]
    return nll, (np.exp(p) * (p - q)).sum(axis=1), base.argmax(axis=1) == logits.argmax(axis=1)
