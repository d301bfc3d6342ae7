"""What a quantization will do to a model: types, scheme and the new header, decided before any work."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_VERSION
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.imatrix import ImportanceMatrix, read_imatrix
from pyquant.calibration.stats_file import Calibration
from pyquant.errors import ConfigError
from pyquant.models.header import set_metadata
from pyquant.models.model_file import ModelFile
from pyquant.models.q4_t import Q4_T_FILE_TYPE, table_entries
from pyquant.models.tensor import Tensor, padded
from pyquant.models.tensor_reader import TensorReader
from pyquant.models.tensor_type import TensorType as Type
from pyquant.quantize.factors import COMPENSATED, Factors, Matrix, matrices
from pyquant.quantize.types import choose_types
from pyquant.schemes import Mode, Scheme
from pyquant.schemes.q8_0 import q8_0

# Keys that say how the source is laid out. llama-quantize keeps the alignment, lays out its file by
# the default nevertheless, and then no reader finds the tensors.
LAYOUT_KEYS = ("general.alignment", "split.no", "split.count", "split.tensors.count")


@dataclass(frozen=True)
class Part:
    """What one pass makes: a tensor, or an expert's part of one, by an encoder (None: as it is).

    importance: (n_experts, n_per_row) for the encoder. n_bytes: that are written.
    """

    tensor: Tensor
    target: _core.Encoder | None
    importance: NDArray[np.float32] | None
    n_bytes: int


@dataclass(frozen=True)
class Plan:
    """A quantization decided on, nothing of it done: the types, the scheme, the new header.

    calibration: what compensates errors; importance: its diagonals, or an importance matrix.
    sha256: of the model, where the header says it.
    """

    model: ModelFile
    mode: Mode
    scheme: Scheme | None
    calibration: Calibration | None
    importance: ImportanceMatrix | None
    types: dict[str, Type]
    header: _core.Gguf
    sha256: str | None

    def changes(self, tensor: Tensor) -> bool:
        return self.types[tensor.name] != tensor.type

    def n_bytes(self, tensor: Tensor) -> int:
        return tensor.n_rows * _core.row_bytes(int(self.types[tensor.name]), tensor.n_per_row)

    @property
    def output_bytes(self) -> int:
        data = sum(padded(self.n_bytes(tensor)) for tensor in self.model.tensors)
        return len(self.header.header()) + data

    def searched(self, tensor: Tensor) -> bool:
        """Whether csrc/compensate rounds it, with errors compensated or not."""
        if not self.changes(tensor):
            return False
        if self._has_scheme(tensor):
            return self.scheme.searches(tensor.name, self.calibration)
        return self.calibration is not None and self.types[tensor.name] in COMPENSATED

    def offset(self, tensor: Tensor) -> int:
        """Where its data begin in the output."""
        return self._offsets[tensor.name]

    @cached_property
    def _offsets(self) -> dict[str, int]:
        sizes = (padded(self.n_bytes(tensor)) for tensor in self.model.tensors)
        offsets = itertools.accumulate(sizes, initial=len(self.header.header()))
        return {tensor.name: offset for tensor, offset in zip(self.model.tensors, offsets)}

    @property
    def in_order(self) -> list[Tensor]:
        """The tensors that are rounded while the model runs, in about its order; see `sequential`."""
        if not self.mode.sequential:
            return []
        by_name = {tensor.name: tensor for tensor in self.model.tensors if self.changes(tensor)}
        return [by_name[name] for name in self.calibration.matrices if name in by_name]

    def factors(self) -> Factors:
        """What `parts` needs to know of inputs, for its tensors in the order in which they are rounded."""
        first = self.in_order
        rest = [tensor for tensor in self.model.tensors if tensor not in first]
        wanted = [m for tensor in [*first, *rest] if self.searched(tensor) for m in self._matrices(tensor)]
        return Factors(self.calibration, self.mode.damping, wanted)

    def made(self, tensor: Tensor, path: Path) -> Tensor:
        """What the tensor becomes in the output, which is at `path`."""
        packed = self._has_scheme(tensor) and self.scheme.q4_t
        return replace(
            tensor, type=self.types[tensor.name], path=path, offset=self.offset(tensor),
            n_bytes=self.n_bytes(tensor), table=self.scheme.table_of(tensor.name) if packed else None,
        )  # fmt: skip

    def parts(self, tensor: Tensor, factors: Factors) -> Iterator[Part]:
        """What a tensor is made of, in the order in which it is stored."""
        n_bytes = self.n_bytes(tensor)
        kind = int(self.types[tensor.name])
        if not self.changes(tensor):
            yield Part(tensor, None, None, n_bytes)
        elif self.searched(tensor):
            matrices = self._matrices(tensor)
            for matrix in matrices:
                factor = factors.of(matrix)
                if self._has_scheme(tensor):
                    encoder = self.scheme.searched(tensor.name, factor)
                else:
                    encoder = _core.compensated_encoder(kind, factor)
                yield Part(matrix.tensor, encoder, None, n_bytes // len(matrices))
        else:
            importance = self.importance.of(tensor) if self.importance else None
            is_ours = self._has_scheme(tensor)
            encoder = _core.scheme_encoder(self.scheme.kernel()) if is_ours else _core.ggml_encoder(kind)
            yield Part(tensor, encoder, importance, n_bytes)

    def _has_scheme(self, tensor: Tensor) -> bool:
        return self.scheme is not None and self.types[tensor.name] == self.scheme.storage

    def _matrices(self, tensor: Tensor) -> list[Matrix]:
        return list(matrices(tensor, _core.columns_together(int(self.types[tensor.name]))))


def make_plan(model: ModelFile, mode: Mode, *, threads: int | None = None) -> Plan:
    """Decides everything; reads the model's weights only where its table is made from them.

    Raises ModelFileError and ConfigError.
    """
    calibration = Calibration.read(mode.calibration) if mode.calibration else None
    if mode.sequential and not (calibration and calibration.origin):
        raise ConfigError("sequential: needs --calibration with a file that `pyquant calibrate` wrote")
    importance = _importance(mode, calibration)
    types = choose_types(model, mode, has_importance=importance is not None)
    sha256 = None
    if calibration:
        sha256 = model.sha256()
        calibration.check_model(model, sha256)
    folded = [t for t in model.tensors if types[t.name] == Type.Q8_0 and types[t.name] != t.type]

    scheme = mode.scheme(lambda: q8_0_codes(model, folded, threads=threads))
    for tensor in model.tensors:
        if scheme and types[tensor.name] == scheme.stock != tensor.type:
            types[tensor.name] = scheme.type_of(tensor, calibration)
    if mode.q4_t:
        scheme = replace(scheme, q4_t=True)
        for tensor in model.tensors:
            if types[tensor.name] == scheme.stock != tensor.type:
                types[tensor.name] = scheme.storage
    plan = Plan(model, mode, scheme, calibration, importance, types, _core.Gguf(), sha256)
    if calibration and calibration.origin:  # an importance matrix has no moments to be singular
        names = [tensor.name for tensor in model.tensors if plan.searched(tensor)]
        calibration.check_tokens(name for name in names if name in calibration.matrices)
    _fill_header(plan)
    return plan


def _importance(mode: Mode, calibration: Calibration | None) -> ImportanceMatrix | None:
    if calibration and mode.imatrix:
        raise ConfigError("imatrix: a calibration holds one; give either --imatrix or --calibration")
    if calibration:
        return calibration.importance()
    if not mode.imatrix:
        return None
    known = Calibration.read(mode.imatrix)
    return known.importance() if known.origin else read_imatrix(mode.imatrix)


def q8_0_codes(model: ModelFile, tensors: list[Tensor], *, threads: int | None = None) -> NDArray[np.uint64]:
    """(256,) uint64: how often each code occurs where these tensors are made Q8_0, modulo 256."""
    counts = np.zeros(256, np.uint64)
    target = _core.scheme_encoder(q8_0().kernel())
    with TensorReader(model, tensors, threads, None) as reader:
        for tensor in tensors:
            counts += reader.run(tensor, target=target, count=True).codes
    return counts


def metadata(plan: Plan, sha256: str) -> dict[str, str | int]:
    """What a file says of its making: the mode, its parameters and the hash of the source; and the
    tables of tensors whose codes are packed. Nothing of files that llama-quantize would make too."""
    mode, scheme = plan.mode, plan.scheme
    if scheme is None and plan.calibration is None:
        return {}
    entries: dict[str, str | int] = {"pyquant.mode": mode.mode}
    for key, value in mode.parameters(scheme).items():
        entries[f"pyquant.{key}"] = value
    if plan.calibration:
        entries["pyquant.damping"] = f"{mode.damping:g}"
    if mode.sequential:
        entries["pyquant.sequential"] = mode.sequential
    if scheme is not None and scheme.q4_t:
        packed = (name for name, kind in plan.types.items() if kind == scheme.storage)
        entries |= table_entries((name, scheme.table_of(name)) for name in packed)
        entries["general.file_type"] = Q4_T_FILE_TYPE
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


def _fill_header(plan: Plan) -> None:
    header, model = plan.header, plan.model
    header.copy_keys(model.header)
    header.set_u32("general.quantization_version", GGML_QUANT_VERSION)
    header.set_u32("general.file_type", int(plan.mode.file_type))
    for key in LAYOUT_KEYS:
        header.remove(key)
    if plan.importance:
        set_metadata(header, importance_metadata(plan.importance))
    set_metadata(header, metadata(plan, sha256=plan.sha256 or "0" * 64))
    for tensor in model.tensors:
        header.add_tensor(tensor.name, int(plan.types[tensor.name]), tensor.shape)
