"""Describe what a model file holds, from its headers alone."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pyquant.formulas import bits_per_weight
from pyquant.models.file_type import FILE_TYPES
from pyquant.models.model_file import AnyModel, open_model
from pyquant.models.pqz.pqz_file import PqzFile
from pyquant.models.q4_t import Q4_T_FILE_TYPE, is_table_entry
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_type import TensorType
from pyquant.models.treatment import Untreated, untreated

LONGEST_ARRAY = 16  # metadata arrays up to this length are shown; vocabularies are not


@dataclass(frozen=True)
class TypeShare:
    """All tensors of one type; n_bytes: of their data."""

    type: str
    n_tensors: int
    n_weights: int
    n_bytes: int


@dataclass(frozen=True)
class TensorInfo:
    """One tensor.

    Attributes
    ----------
    shape
        Lengths in GGML's order: the length of a row comes first.
    n_bytes
        The size of its data.
    table
        The 16 values of its codes; only for type Q4_T.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    n_weights: int
    n_bytes: int
    table: tuple[int, ...] | None = None


@dataclass(frozen=True)
class ModelInfo:
    """A model's headers in short.

    Attributes
    ----------
    n_bytes
        The size of all its files.
    bits_per_weight
        Bits of all files; None for no weights.
    provenance
        What pyquant wrote about how the file was made, by key without the prefix "pyquant.".
    pqz
        Of a pqz file, the bytes of the GGUF it expands to (`gguf_bytes`) and the versions of the `tools`
        that packed it.
    metadata
        Scalars, texts and short arrays; a longer array is {"length": n}.
    untreated
        Matrices that cannot be quantized, or not rounded by GPTQ, and why.
    """

    path: str
    n_files: int
    architecture: str | None
    name: str | None
    file_type: str | None
    n_bytes: int
    n_weights: int
    bits_per_weight: float | None
    types: list[TypeShare]
    provenance: dict[str, Any]
    pqz: dict[str, Any] | None
    metadata: dict[str, Any]
    untreated: list[Untreated]
    tensors: list[TensorInfo]

    def to_json(self) -> dict[str, Any]:
        """Give the description as `pyquant info MODEL --json` prints it, schema pyquant.info/2."""
        return {"schema": "pyquant.info/2", **asdict(self)}


def model_info(model: AnyModel) -> ModelInfo:
    """Describe a model.

    Parameters
    ----------
    model
        A path, or an opened model.

    Raises
    ------
    ModelFileError
        The file cannot be read.
    """
    model = open_model(model)
    keys = model.header.keys()  # in the file's order
    metadata = {key: _plain(model.get(key)) for key in keys if not is_table_entry(key)}
    types = _types(model.tensors)
    return ModelInfo(
        path=str(model.path),
        n_files=len(model.paths),
        architecture=metadata.get("general.architecture"),
        name=metadata.get("general.name"),
        file_type=_file_type(metadata.get("general.file_type")),
        n_bytes=model.n_bytes,
        n_weights=model.n_weights,
        bits_per_weight=bits_per_weight(model.n_bytes, model.n_weights),
        types=types,
        provenance={
            key.removeprefix("pyquant."): value
            for key, value in metadata.items()
            if key.startswith("pyquant.")
        },
        pqz=_pqz(model.pqz_files) if model.pqz_files else None,
        metadata=metadata,
        untreated=untreated(model),
        tensors=[
            TensorInfo(
                t.name, t.type.name, t.shape, t.n_weights, t.n_bytes, t.table.values if t.table else None
            )
            for t in model.tensors
        ],
    )


def _pqz(files: list[PqzFile]) -> dict[str, Any]:
    return {"gguf_bytes": sum(file.n_bytes for file in files), "tools": files[0].index.tools}


def _types(tensors: Iterable[Tensor]) -> list[TypeShare]:
    sums: dict[str, list[int]] = {}
    for tensor in tensors:
        share = sums.setdefault(tensor.type.name, [0, 0, 0])
        share[0] += 1
        share[1] += tensor.n_weights
        share[2] += tensor.n_bytes
    return sorted((TypeShare(name, *share) for name, share in sums.items()), key=lambda s: -s.n_bytes)


def _file_type(value: Any) -> str | None:
    if value == Q4_T_FILE_TYPE:
        return TensorType.Q4_T.name
    names = {number: name for name, number in FILE_TYPES.items()}
    unknown = None if value is None else f"unknown ({value})"
    return names.get(value, unknown) if isinstance(value, int) else unknown


def _plain(value: Any) -> Any:
    """Turn a metadata value into what JSON can hold."""
    if isinstance(value, np.ndarray):
        value = value.tolist() if len(value) <= LONGEST_ARRAY else {"length": len(value)}
    if isinstance(value, list):
        return [_plain(item) for item in value] if len(value) <= LONGEST_ARRAY else {"length": len(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):  # what is not UTF-8 comes as lone surrogates
        return value.encode(errors="surrogateescape").decode(errors="replace")
    return value
