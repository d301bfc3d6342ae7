"""What a quantization will do to a model: types, scheme and the new header, decided before any work."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from gguf import GGML_QUANT_VERSION
from numpy.typing import NDArray

from pyquant import _core
from pyquant.code_table import PACKED_FILE_TYPE, table_entries
from pyquant.imatrix import ImportanceMatrix, read_imatrix
from pyquant.model_file import ModelFile, Tensor
from pyquant.policy import choose_types
from pyquant.schemes import Mode, Scheme
from pyquant.schemes.q8_0 import q8_0
from pyquant.tensor_pass import TensorReader
from pyquant.tensor_type import TensorType as Type

ALIGNMENT = 32  # of tensor data: GGUF's default
# Keys that say how the source is laid out. llama-quantize keeps the alignment, lays out its file by
# the default nevertheless, and then no reader finds the tensors.
LAYOUT_KEYS = ("general.alignment", "split.no", "split.count", "split.tensors.count")


@dataclass(frozen=True)
class Plan:
    """A quantization decided on, nothing of it done: the types, the scheme, the new header."""

    model: ModelFile
    mode: Mode
    scheme: Scheme | None
    importance: ImportanceMatrix | None
    types: dict[str, Type]
    header: _core.Gguf

    def changes(self, tensor: Tensor) -> bool:
        return self.types[tensor.name] != tensor.type

    def n_bytes(self, tensor: Tensor) -> int:
        return tensor.n_rows * _core.row_bytes(int(self.types[tensor.name]), tensor.n_per_row)

    @property
    def output_bytes(self) -> int:
        data = sum(padded(self.n_bytes(tensor)) for tensor in self.model.tensors)
        return len(self.header.header()) + data

    def codec(self, tensor: Tensor) -> _core.Codec:
        kind = self.types[tensor.name]
        if self.scheme is not None and kind == self.scheme.container:
            return _core.scheme_codec(self.scheme.kernel())
        return _core.ggml_codec(int(kind))

    def importance_of(self, tensor: Tensor) -> NDArray[np.float32] | None:
        return self.importance.of(tensor) if self.importance else None


def make_plan(model: ModelFile, mode: Mode) -> Plan:
    """Decides everything; reads the model's weights only where its table is made from them.

    Raises ModelFileError and ConfigError.
    """
    importance = read_imatrix(mode.imatrix) if mode.imatrix else None
    types = choose_types(model, mode, has_importance=importance is not None)
    folded = [t for t in model.tensors if types[t.name] == Type.Q8_0 and types[t.name] != t.type]

    scheme = mode.scheme(lambda: q8_0_codes(model, folded, threads=mode.threads))
    if mode.packed:
        scheme = replace(scheme, packed=True)
        for tensor in model.tensors:
            if types[tensor.name] == scheme.stock != tensor.type:
                types[tensor.name] = scheme.container
    header = _header(model, mode, scheme, importance, types)
    return Plan(model, mode, scheme, importance, types, header)


def q8_0_codes(model: ModelFile, tensors: list[Tensor], *, threads: int | None = None) -> NDArray[np.uint64]:
    """(256,) uint64: how often each code occurs where these tensors are made Q8_0, modulo 256."""
    counts = np.zeros(256, np.uint64)
    target = _core.scheme_codec(q8_0().kernel())
    with TensorReader(model, tensors, threads, None) as reader:
        for tensor in tensors:
            counts += reader.run(tensor, target=target, count=True).codes
    return counts


def metadata(mode: Mode, scheme: Scheme, types: dict[str, Type], sha256: str) -> dict[str, str | int]:
    """What a file says of its making: the mode, its parameters and the hash of the source; and the
    tables of tensors whose codes are packed."""
    entries: dict[str, str | int] = {"pyquant.mode": mode.mode}
    for key, value in mode.parameters(scheme).items():
        entries[f"pyquant.{key}"] = value
    if scheme.packed:
        packed = (name for name, kind in types.items() if kind == scheme.container)
        entries |= table_entries((name, scheme.table) for name in packed)
        entries["general.file_type"] = PACKED_FILE_TYPE
    return {**entries, "pyquant.source.sha256": sha256}


def importance_metadata(importance: ImportanceMatrix) -> dict[str, str | int]:
    """The keys that llama-quantize writes for an importance matrix."""
    entries: dict[str, str | int] = {"quantize.imatrix.file": _cut(str(importance.path))}
    if importance.datasets:
        entries["quantize.imatrix.dataset"] = _cut(importance.datasets[0])
    entries["quantize.imatrix.entries_count"] = len(importance.weights)
    if importance.n_chunks > 0:
        entries["quantize.imatrix.chunks_count"] = importance.n_chunks
    return entries


def _cut(text: str) -> str:
    """As much as llama-quantize keeps: 127 bytes."""
    return text.encode(errors="surrogateescape")[:127].decode(errors="surrogateescape")


def set_metadata(header: _core.Gguf, entries: dict[str, str | int]) -> None:
    for key, value in entries.items():
        header.set_text(key, value) if isinstance(value, str) else header.set_u32(key, value)


def _header(
    model: ModelFile,
    mode: Mode,
    scheme: Scheme | None,
    importance: ImportanceMatrix | None,
    types: dict[str, Type],
) -> _core.Gguf:
    header = _core.Gguf()
    header.copy_keys(model.header)
    header.set_u32("general.quantization_version", GGML_QUANT_VERSION)
    header.set_u32("general.file_type", int(mode.file_type))
    for key in LAYOUT_KEYS:
        header.remove(key)
    if importance:
        set_metadata(header, importance_metadata(importance))
    if scheme is not None:
        set_metadata(header, metadata(mode, scheme, types, sha256="0" * 64))
    for tensor in model.tensors:
        header.add_tensor(tensor.name, int(types[tensor.name]), tensor.shape)
    return header


def padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
