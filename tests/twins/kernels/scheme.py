"""Weights through a scheme: twin of csrc/kernels/scheme.h."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyquant.schemes.base import Scheme
from tests.twins.kernels.block import BLOCK, STORE, store_q4_t
from tests.twins.kernels.block_scale import GRIDS


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
