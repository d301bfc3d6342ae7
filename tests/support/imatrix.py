"""Importance matrices in the old format."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from pyquant.models.model_file import ModelFile


def legacy_imatrix(model: Path, path: Path) -> Path:
    """An importance matrix in the old format, for all matrices but the embeddings."""
    rng = np.random.default_rng(3)
    matrices = [t for t in ModelFile(model).tensors if len(t.shape) > 1 and t.name != "token_embd.weight"]
    data = struct.pack("<i", len(matrices))
    for tensor in matrices:
        weights = rng.exponential(size=tensor.n_weights // tensor.shape[1]).astype("<f4")
        name = tensor.name.encode()
        data += struct.pack("<i", len(name)) + name + struct.pack("<ii", 1, weights.size) + weights.tobytes()
    path.write_bytes(data + struct.pack("<ii", 4, 8) + b"made.txt")
    return path
