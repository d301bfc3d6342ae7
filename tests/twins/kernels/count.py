"""Counts of codes and of runs of zeros: twin of csrc/kernels/count.h."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from numpy.typing import NDArray

RUN_BINS = 16  # lengths 1..15, and 16 or more in the last


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
