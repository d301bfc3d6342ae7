"""Passes over arrays in memory instead of tensors in files."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from pyquant import _core

ERROR_KEYS = (
    "squared_error",
    "squared_weight",
    "squared_value",
    "largest_error",
    "largest_error_at",
    "zeros",
)


def run_pass(
    x: NDArray[Any],
    target: _core.Encoder | None = None,
    *,
    source: Type = Type.F32,
    n_per_row: int | None = None,
    **work: Any,
) -> tuple[NDArray[np.uint8], _core.PassResult]:
    """One pass over rows x as `source` stores them, (n_rows, n_per_row) unless they are quantized.

    Returns what it wrote and its result.
    """
    n_rows, n_per_row = len(x), n_per_row or x.shape[1]
    before, after = os.memfd_create("source"), os.memfd_create("target")
    try:
        os.pwrite(before, b"unaligned" + x.tobytes(), 0)
        result = _core.run_pass(
            in_file=before, in_offset=9, n_rows=n_rows, n_per_row=n_per_row,
            source=_core.ggml_decoder(int(source)), target=target, out_file=after, out_offset=0, **work,
        )  # fmt: skip
        size = os.fstat(after).st_size
        return np.frombuffer(os.pread(after, size, 0), np.uint8), result
    finally:
        os.close(before)
        os.close(after)


def errors(result: _core.PassResult) -> dict[str, float]:
    return {key: getattr(result, key) for key in ERROR_KEYS}
