"""A call of a method, over few tokens."""

from __future__ import annotations

from pathlib import Path

from pyquant.fit.method.quantize import quantize
from pyquant.fit.method.quantized import Quantized

NAME = "f32, rows of 64 and 96"
STAGES = ["imatrix", "GPTQ", "output-side Hessian", "cross-layer equalization", "error propagation"]


def made(
    source: Path, output: Path, short: Path, method: str = "best", n_chunks: int = 16, **options: object
) -> Quantized:
    return quantize(source, output, "Q4_0", method=method, text=short, n_ctx=64, n_chunks=n_chunks, **options)
