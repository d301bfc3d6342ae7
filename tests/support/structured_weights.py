"""Random weights that have what trained ones have and noise lacks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def structured_weights(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float32]:
    """Make a tensor's weights, in numpy's order, the length of a row last.

    Columns of matrices have different scales, and some are far out; many rows have directions in common;
    tails are heavy. So GPTQ has something to gain.
    """
    kind = name.removesuffix(".weight").rpartition(".")[2]
    if kind == "ssm_a":
        x = -np.exp(rng.normal(size=shape) / 2)
    elif kind == "bias":
        x = rng.normal(size=shape) / 10
    elif len(shape) == 1:
        x = np.exp(rng.normal(size=shape) / 3)
    else:
        *rows, n_in = shape
        rank = max(1, n_in // 8)
        common = rng.normal(size=(*rows, rank)) @ rng.normal(size=(rank, n_in)) / np.sqrt(rank)
        x = (common + rng.laplace(size=shape) / 2) * np.exp(rng.normal(size=n_in) / 3)
        x[..., rng.choice(n_in, max(1, n_in // 64), replace=False)] *= 4
        x /= np.sqrt(n_in * np.mean(x**2))
        x *= 0.5 if "embd" in kind or kind == "output" else 1
    return x.astype(np.float32)
