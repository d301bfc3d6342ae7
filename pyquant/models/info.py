"""What a model file holds."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from gguf import LlamaFileType

from pyquant.models.model_file import ModelFile, Tensor
from pyquant.models.pqz.pqz_file import PqzFile, is_pqz
from pyquant.models.q4_t import Q4_T_FILE_TYPE, is_table_entry
from pyquant.models.tensor_type import TensorType

LONGEST_ARRAY = 16  # metadata arrays up to this length are shown; vocabularies are not


@dataclass(frozen=True)
class TypeShare:
    """The tensors of one type. n_bytes: of their data."""

    type: str
    n_tensors: int
    n_weights: int
    n_bytes: int


@dataclass(frozen=True)
class TensorInfo:
    """shape: as GGML has it, the length of a row first. n_bytes: of its data. table: of type Q4_T, the
    16 values of its codes."""

    name: str
    type: str
    shape: tuple[int, ...]
    n_weights: int
    n_bytes: int
    table: tuple[int, ...] | None = None


@dataclass(frozen=True)
class ModelInfo:
    """A model's headers in short.

    n_bytes: of its files. bits_per_weight: of the tensors' data, of packed models of the whole files;
    None where there is none. metadata: scalars, texts and short arrays; longer arrays as {"length": n}.
    provenance: what pyquant wrote about how the file was made, without the keys' prefix. packed: of a
    packed model the bytes of its GGUFs, and by which versions of which tools it was packed.
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
    packed: dict[str, Any] | None
    metadata: dict[str, Any]
    tensors: list[TensorInfo]

    def to_json(self) -> dict[str, Any]:
        """The description as `pyquant info MODEL --json` prints it."""
        return {"schema": "pyquant.info/1", **asdict(self)}


def model_info(model: ModelFile | str | os.PathLike[str]) -> ModelInfo:
    """Describes a model from its headers alone. Raises ModelFileError."""
    model = model if isinstance(model, ModelFile) else ModelFile(model)
    keys = model.header.keys()  # in the file's order
    metadata = {key: _plain(model.get(key)) for key in keys if not is_table_entry(key)}
    types = _types(model.tensors)
    packed = [PqzFile(path) for path in model.paths if is_pqz(path)]
    data = model.n_bytes if packed else sum(share.n_bytes for share in types)
    return ModelInfo(
        path=str(model.path),
        n_files=len(model.paths),
        architecture=metadata.get("general.architecture"),
        name=metadata.get("general.name"),
        file_type=_file_type(metadata.get("general.file_type")),
        n_bytes=model.n_bytes,
        n_weights=model.n_weights,
        bits_per_weight=8 * data / model.n_weights if model.n_weights else None,
        types=types,
        provenance={
            key.removeprefix("pyquant."): value
            for key, value in metadata.items()
            if key.startswith("pyquant.")
        },
        packed=_packed(packed) if packed else None,
        metadata=metadata,
        tensors=[
            TensorInfo(t.name, t.type.name, t.shape, t.n_weights, t.n_bytes, t.table and t.table.values)
            for t in model.tensors
        ],
    )


def _packed(files: list[PqzFile]) -> dict[str, Any]:
    return {"gguf_bytes": sum(file.n_bytes for file in files), "tools": files[0].index.tools}


def _types(tensors: Iterable[Tensor]) -> list[TypeShare]:
    sums: dict[str, list[int]] = {}
    for tensor in tensors:
        share = sums.setdefault(tensor.type.name, [0, 0, 0])
        share[0] += 1
        share[1] += tensor.n_weights
        share[2] += tensor.n_bytes
    return sorted((TypeShare(kind, *share) for kind, share in sums.items()), key=lambda s: -s.n_bytes)


def _file_type(value: Any) -> str | None:
    if value == Q4_T_FILE_TYPE:
        return TensorType.Q4_T.name
    try:
        return LlamaFileType(value).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    except ValueError:
        return None if value is None else f"unknown ({value})"


def _plain(value: Any) -> Any:
    """As JSON can hold it."""
    if isinstance(value, np.ndarray):
        value = value.tolist() if len(value) <= LONGEST_ARRAY else {"length": len(value)}
    if isinstance(value, list):
        return [_plain(item) for item in value] if len(value) <= LONGEST_ARRAY else {"length": len(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):  # what is not UTF-8 comes as lone surrogates
        return value.encode(errors="surrogateescape").decode(errors="replace")
    return value
