"""Products of Q4_T rows: twin of csrc/kernels/table_product.h."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.twins.kernels.block import BLOCK, load_q8_0, nibbles, scales_of


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
    rows = scales_of(blocks.reshape(-1, 18)).reshape(-1, n).astype(np.float32)
    columns = scales.reshape(-1, n).astype(np.float32)
    products = np.zeros(integers.shape[1:], np.float32)
    for b in range(n):
        products += integers[b].astype(np.float32) * (rows[None, :, b] * columns[:, None, b])
    return products
