"""Find weights that lie on the lattice of a type already: of a model trained for it, or quantized before.

Rounding can only move them, so blocks that hold them as they are take their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.machine.cpu import n_threads
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_type import TensorType as Type
from pyquant.models.treatment import BLOCK

BITS = {Type.F32: 24, Type.F16: 11, Type.BF16: 8}  # bits of significands
NEAR = 2.0**-8  # share of a weight: twice what BF16 rounds
NEAR_OF_LARGEST = 2.0**-11  # share of a block's largest weight: what the minimum is rounded to

FIRST_ROWS = 32  # which tell all other matrices apart
PIECE = 1 << 22  # weights that are looked at together


# What was found of a model's tensors, by its header, which copies of it share: each plan asks again.
_found: WeakKeyDictionary[_core.Gguf, dict[tuple[str, Type], _core.Encoder | None]] = WeakKeyDictionary()


def lattice_encoders(
    model: ModelFile, wanted: Sequence[tuple[Tensor, Type]], threads: int | None
) -> dict[str, _core.Encoder]:
    """Make by name what stores those of a model's tensors that lie on a lattice of their new type."""
    found = _found.setdefault(model.header, {})
    missing = [(tensor, type_) for tensor, type_ in wanted if (tensor.name, type_) not in found]
    with ThreadPoolExecutor(n_threads(threads)) as executor:
        made = executor.map(lambda each: lattice_encoder(*each), missing)
        found.update({(tensor.name, type_): encoder for (tensor, type_), encoder in zip(missing, made)})
    encoders = {tensor.name: found[tensor.name, type_] for tensor, type_ in wanted}
    return {name: encoder for name, encoder in encoders.items() if encoder}


def lattice_encoder(tensor: Tensor, type_: Type) -> _core.Encoder | None:
    """Make what stores a tensor's weights as they are in blocks of a type.

    Parameters
    ----------
    tensor
        What is rounded; others than floats lie on no lattice.
    type_
        What it becomes.

    Returns
    -------
    The encoder; None where some weight would move by more than BF16 moves it, or where blocks of the type
    have more than an fp16 scale and an fp16 minimum.
    """
    if tensor.type not in BITS or tensor.pqz or tensor.n_per_row % BLOCK:
        return None
    encoder = _core.lattice_encoder(int(type_), tensor.n_per_row, BITS[tensor.type])
    if encoder is None or not all(_holds(encoder, rows) for rows in _pieces(tensor)):
        return None
    return encoder


def _pieces(tensor: Tensor) -> Iterator[NDArray[np.float32]]:
    row_bytes, first, n = tensor.n_bytes // tensor.n_rows, 0, FIRST_ROWS
    with tensor.path.open("rb") as file:
        file.seek(tensor.offset)
        while first < tensor.n_rows:
            stored = np.frombuffer(file.read(min(n, tensor.n_rows - first) * row_bytes), np.uint8)
            yield tensor.decoder().decode(stored.reshape(-1, row_bytes), n_per_row=tensor.n_per_row)
            first, n = first + n, max(1, PIECE // tensor.n_per_row)


def _holds(encoder: _core.Encoder, weights: NDArray[np.float32]) -> bool:
    if not np.isfinite(weights).all():
        return False
    try:
        blocks = encoder.encode(weights)
    except _core.WeightError:  # larger than the type holds
        return False
    size = np.abs(weights).reshape(-1, BLOCK)
    moved = np.abs(encoder.decode(blocks, weights.shape[1]) - weights).reshape(-1, BLOCK)
    allowed = NEAR * size + NEAR_OF_LARGEST * size.max(axis=1, keepdims=True)
    return bool((moved <= allowed).all())
