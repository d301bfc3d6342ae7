"""Products with few columns of activations: twin of csrc/generation/few/few_columns.h."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyquant.models.tensor_type import TensorType
from tests.twins.kernels.block import BLOCK, load_q8_0


def multiply_few(
    kind: TensorType, rows: NDArray[np.uint8], x: NDArray[np.uint8], *, lanes: int, pairs: bool = False
) -> NDArray[np.float32]:
    """Multiply rows of F16, BF16 or Q8_0 weights with columns of the same type, in the order of GGML's sums.

    Lane i of a register adds the products of weights i, i + lanes, i + 2 lanes, ... A fused multiplication
    and addition rounds once. At the end the upper half of the lanes is added to the lower half until one
    lane is left.

    Parameters
    ----------
    kind : TensorType
        F16, BF16 or Q8_0.
    rows : (n_rows, n, bytes of a block) uint8
        Rows of n blocks of 32 weights.
    x : (n_columns, n, bytes of a block) uint8
        Columns of n blocks of 32 activations.
    lanes : int
        Sums of a product. In Q8_0 a lane takes from each block the integer of 32 / lanes products.
    pairs : bool
        Whether a lane adds the product of weight 2 i + 1 and then that of weight 2 i, as the instruction
        for BF16 does.

    Returns
    -------
    (n_columns, n_rows) float32
    """
    if kind == TensorType.Q8_0:
        terms = _block_terms(rows, x, lanes)
    else:
        terms = _terms(_floats(kind, rows), _floats(kind, x), lanes, pairs)
    sums = np.zeros((len(x), len(rows), lanes), np.float32)
    for term in terms:  # in float64 a product is exact
        sums = (sums + term).astype(np.float32)
    while sums.shape[-1] > 1:
        half = sums.shape[-1] // 2
        sums = sums[..., :half] + sums[..., half:]
    return sums[..., 0]


def _floats(kind: TensorType, blocks: NDArray[np.uint8]) -> NDArray[np.float64]:
    flat = np.ascontiguousarray(blocks).reshape(len(blocks), -1)
    if kind == TensorType.F16:
        return flat.view(np.float16).astype(np.float64)
    return (flat.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def _terms(
    rows: NDArray[np.float64], x: NDArray[np.float64], lanes: int, pairs: bool
) -> list[NDArray[np.float64]]:
    products = x[:, None] * rows[None]
    if not pairs:
        return list(np.moveaxis(products.reshape(len(x), len(rows), -1, lanes), 2, 0))
    both = products.reshape(len(x), len(rows), -1, lanes, 2)
    return [both[:, :, step, :, i] for step in range(both.shape[2]) for i in (1, 0)]


def _block_terms(rows: NDArray[np.uint8], x: NDArray[np.uint8], lanes: int) -> list[NDArray[np.float64]]:
    n = rows.shape[1]
    (row_scales, row_codes), (x_scales, x_codes) = (load_q8_0(blocks.reshape(-1, 34)) for blocks in (rows, x))
    w = row_codes.reshape(-1, n, lanes, BLOCK // lanes).astype(np.int32)
    activations = x_codes.reshape(-1, n, lanes, BLOCK // lanes).astype(np.int32)
    integers = np.einsum("rblj,cblj->bcrl", w, activations)
    scales = np.einsum(
        "rb,cb->bcr", row_scales.reshape(-1, n).astype(np.float64), x_scales.reshape(-1, n).astype(np.float64)
    ).astype(np.float32)
    return list(scales[..., None].astype(np.float64) * integers)
