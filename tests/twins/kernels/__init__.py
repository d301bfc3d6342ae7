"""Numpy twins of csrc/kernels: one file for each of its headers, one function for each kernel.

A block is 32 consecutive weights of a row. A twin returns the bits that its kernel returns, also for the
odd input for which GGML's reference quantizers make odd scales and codes. Sums of errors alone may differ
in the last digits, because sums are added in another order. Twins are slow: use them on small arrays.
"""

from tests.twins.kernels.block import (
    BLOCK,
    BLOCK_BYTES,
    LOAD,
    STORE,
    decode,
    decode_table,
    expand,
    load_q4_0,
    load_q8_0,
    nibbles,
    store_q4_0,
    store_q4_t,
    store_q8_0,
)
from tests.twins.kernels.block_scale import GRIDS, grid_q4_0, grid_q8_0
from tests.twins.kernels.count import RUN_BINS, code_counts, zero_runs
from tests.twins.kernels.error import error, weighted_error
from tests.twins.kernels.kld import compare_logits, negative_log_likelihood
from tests.twins.kernels.scheme import encode, fold, folded_codes
from tests.twins.kernels.table_product import multiply_table

__all__ = [
    "BLOCK",
    "BLOCK_BYTES",
    "GRIDS",
    "LOAD",
    "RUN_BINS",
    "STORE",
    "code_counts",
    "compare_logits",
    "decode",
    "decode_table",
    "encode",
    "error",
    "expand",
    "fold",
    "folded_codes",
    "grid_q4_0",
    "grid_q8_0",
    "load_q4_0",
    "load_q8_0",
    "multiply_table",
    "negative_log_likelihood",
    "nibbles",
    "store_q4_0",
    "store_q4_t",
    "store_q8_0",
    "weighted_error",
    "zero_runs",
]
