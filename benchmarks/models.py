"""The generated models that are measured."""

from __future__ import annotations

import argparse
from pathlib import Path

from gguf import GGMLQuantizationType as Type

from tests.models import Model

# 0.55 G weights, in matrices like those of a 1 B model.
LARGE = Model(n_embd=2048, n_ff=5632, n_layer=11, n_head=32, n_head_kv=4, n_vocab=8192, type=Type.F16)
SMALL = Model(n_embd=512, n_ff=1536, n_layer=8, n_head=8, n_head_kv=4, n_vocab=8192, type=Type.F16)
# 0.83 G weights: too large for any cache, even with 4 bits each.
MEMORY_BOUND = Model(n_embd=2048, n_ff=5632, n_layer=18, n_head=32, n_head_kv=4, n_vocab=8192, type=Type.F16)


def model(arguments: argparse.Namespace, kind: Model, name: str) -> Path:
    """Its file in the benchmarks' folder, made where it is missing."""
    path = arguments.folder / name
    if not path.exists():
        kind.write(path)
    return path
