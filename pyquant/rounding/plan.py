"""Hold what a quantization will do to a model: the type of every tensor, the scheme, the new header."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.calibration import Calibration
from pyquant.calibration.imatrix import ImportanceMatrix
from pyquant.errors import ModelFileError
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import UNQUANTIZED, Tensor, file_bytes, padded
from pyquant.models.tensor_name import EMBEDDINGS, OUTPUT
from pyquant.models.tensor_type import TensorType as Type
from pyquant.models.treatment import why_embeddings_are_not
from pyquant.rounding.factors import GPTQ_TYPES, Factors, Matrix, matrices
from pyquant.rounding.on_lattice import lattice_encoders
from pyquant.rounding.output_side import row_factor
from pyquant.rounding.row_weights import RowWeights
from pyquant.rounding.shards import Sharding, shard_paths
from pyquant.rounding.types import choose_types
from pyquant.schemes import Mode, Scheme
from pyquant.schemes.dampening import ROWS

# Types that GGML's quantizers make in the same way with and without an importance matrix.
WITHOUT_IMPORTANCE = (*UNQUANTIZED, Type.Q8_0)


def bytes_as(type_: Type, tensor: Tensor) -> int:
    """Count the bytes that a tensor takes as another type."""
    return tensor.n_rows * _core.row_bytes(int(type_), tensor.n_per_row)


@dataclass(frozen=True)
class Part:
    """Work of one pass: a tensor, or an expert's part of one."""

    tensor: Tensor
    target: _core.Encoder | None  # the encoder that quantizes them; None: they are copied
    importance: NDArray[np.float32] | None  # (n_experts, n_per_row) float32 for the encoder, or None
    n_bytes: int  # the size of what is written


@dataclass(frozen=True)
class PlannedFile:
    """A file to write."""

    header: _core.Gguf
    tensors: list[Tensor]  # in the order in which they are stored


@dataclass(frozen=True)
class Plan:
    """A quantization decided on, of which nothing is done yet."""

    model: ModelFile
    mode: Mode
    scheme: Scheme | None  # what makes the blocks of the scheme's type; None: GGML's own quantizers make all
    calibration: Calibration | None  # what GPTQ rounds by
    importance: ImportanceMatrix | None  # the calibration's diagonals, or an importance matrix
    types: dict[str, Type]  # what each tensor becomes, by name
    wanted: dict[str, Type]  # what each tensor would become if blocks of every type divided its rows, by name
    files: list[PlannedFile]  # the new file, or its shards
    sharding: Sharding | None  # how they are divided into shards; None: a file, and no shard
    sha256: str | None  # the hash of the model, in hex, where it was needed
    threads: int | None  # those that look for lattices; None: one for each core
    collects: bool = True  # whether Hessians that the calibration lacks are collected while the model runs

    def changes(self, tensor: Tensor) -> bool:
        """Say whether a tensor gets another type."""
        return self.types[tensor.name] != tensor.type

    def changes_quantized(self, tensor: Tensor) -> bool:
        """Say whether a tensor that is quantized already gets another type."""
        return self.changes(tensor) and tensor.type not in UNQUANTIZED

    @property
    def requantized_from(self) -> list[str]:
        """The types of quantized tensors that are rounded again, in the order of their names."""
        again = (
            tensor
            for tensor in self.model.tensors
            if self.changes_quantized(tensor) and self.types[tensor.name] not in UNQUANTIZED
        )
        return sorted({tensor.type.name for tensor in again})

    def fell_back_from(self, tensor: Tensor) -> Type | None:
        """Give the type that a tensor would have got if that type's blocks divided its rows; else None."""
        wanted = self.wanted[tensor.name]
        return wanted if wanted != self.types[tensor.name] else None

    def n_bytes(self, tensor: Tensor) -> int:
        """Count the bytes that a tensor becomes."""
        return bytes_as(self.types[tensor.name], tensor)

    @cached_property
    def file_bytes(self) -> list[int]:
        """The size of each of the new files."""
        return [file_bytes(file.header) for file in self.files]

    @property
    def output_bytes(self) -> int:
        """The size of the new files together."""
        return sum(self.file_bytes)

    def paths(self, output: Path) -> list[Path]:
        """Name the new files, where `output` is the name that is asked for."""
        return shard_paths(output, len(self.files)) if self.sharding else [output]

    @cached_property
    def lattices(self) -> dict[str, _core.Encoder]:
        """What stores the tensors that lie on a lattice of their type, by name; none without calibration."""
        if self.calibration is None:
            return {}
        own = [t for t in self.model.tensors if self.changes(t) and not self._scheme_of(t)]
        return lattice_encoders(self.model, [(t, self.types[t.name]) for t in own], self.threads)

    def searched(self, tensor: Tensor) -> bool:
        """Say whether csrc/gptq rounds a tensor, with error feedback or not."""
        if not self.changes(tensor) or tensor.name in self.lattices:
            return False
        if scheme := self._scheme_of(tensor):
            return scheme.searches(tensor.name, self.calibration)
        return (
            self.calibration is not None
            and self.types[tensor.name] in GPTQ_TYPES
            and not self.calibration.is_dead(tensor.name)
            and tensor.name not in self.calibration.not_finite
            and (not self._lacks_hessians or self.looks_up(tensor))
        )

    @property
    def _lacks_hessians(self) -> bool:
        return not self.collects and self.calibration is not None and self.calibration.is_collected_later

    def by_gptq(self, tensor: Tensor) -> bool:
        """Say whether errors in a tensor's columns are made up for by its other columns."""
        if self.calibration is None or not self.searched(tensor):
            return False
        return self.looks_up(tensor) or self.calibration.has_hessian(tensor.name)

    def looks_up(self, tensor: Tensor) -> bool:
        """Say whether a tensor's rows are looked up, and rounded by their output-side Hessian."""
        return (
            self._looks_at_outputs and self.calibration is not None and self.calibration.looks_up(tensor.name)
        )

    @property
    def _looks_at_outputs(self) -> bool:
        # ecsq's steps of rows do not go with an output-side Hessian.
        return self.mode.output_side and not (self.scheme and self.scheme.weighs_rows)

    def without_gptq(self, tensor: Tensor) -> str | None:
        """Say why errors of a quantized tensor are not rounded by GPTQ though a calibration is given.

        Returns: the reason; None where GPTQ rounds, nothing is quantized, no calibration is given, or the
        file is only tried.
        """
        if self.calibration is None or self._lacks_hessians:
            return None
        if not self.changes(tensor) or self.types[tensor.name] in UNQUANTIZED:
            return None
        if tensor.name in self.lattices:
            return f"the weights lie on a lattice of {self.types[tensor.name].name}, and stay as they are"
        known = tensor.name in self.calibration.matrices and not self.calibration.is_dead(tensor.name)
        if known and not self.searched(tensor):
            if self._scheme_of(tensor):
                return f"mode {self.mode.mode} rounds every weight to the nearest code"
            return f"type {self.types[tensor.name].name} is not one that GPTQ rounds to"
        if self.looks_up(tensor) and self.searched(tensor):
            return None
        if tensor.name == EMBEDDINGS and tensor.name not in self.calibration.matrices:
            return why_embeddings_are_not(tied=all(other.name != OUTPUT for other in self.model.tensors))
        return self.calibration.why_no_hessian(tensor.name)

    @property
    def uses_importance(self) -> bool:
        """Say whether the importance matrix has a part in the file: in rounding, or in the choice of types.

        A file without a scheme is llama-quantize's, which says that it was given one whatever came of it.
        """
        if self.importance is None or self.scheme is None:
            return self.importance is not None
        if any(self._weighted(tensor, self.importance) for tensor in self.model.tensors):
            return True
        without = choose_types(self.model, self.mode, has_importance=False)
        return without != choose_types(self.model, self.mode, has_importance=True)

    def _weighted(self, tensor: Tensor, importance: ImportanceMatrix) -> bool:
        if not self.changes(tensor) or importance.of(tensor) is None:
            return False
        if self.searched(tensor):
            return self.calibration is not None
        if scheme := self._scheme_of(tensor):
            return scheme.grid == "q4_0"  # whose scale GGML then searches for; csrc/stream
        return self.types[tensor.name] not in WITHOUT_IMPORTANCE

    def place(self, tensor: Tensor) -> tuple[int, int]:
        """Say in which of the new files a tensor's data are, and where they begin, in bytes."""
        return self._places[tensor.name]

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        places = {}
        for number, file in enumerate(self.files):
            offset = len(file.header.header())
            for tensor in file.tensors:
                places[tensor.name] = number, offset
                offset += padded(self.n_bytes(tensor))
        return places

    @property
    def staged(self) -> list[Tensor]:
        """The tensors that are rounded while the model runs, in about its order.

        With error propagation all matrices but embeddings that are the output matrix too, as what corrects
        that changes what is looked up; and all that GPTQ rounds by Hessians that are collected on the way.
        """
        if self.calibration is None:
            return []
        by_name = {tensor.name: tensor for tensor in self.model.tensors if self.changes(tensor)}
        known = (by_name[name] for name in self.calibration.matrices if name in by_name)
        collects = self.calibration.is_collected_later
        return [
            tensor
            for tensor in known
            if tensor.name not in self.lattices
            and (
                (self.mode.error_propagation and tensor.name != EMBEDDINGS)
                or (collects and self.by_gptq(tensor))
            )
        ]

    def factors(self, threads: int | None = None) -> Factors:
        """Make what `parts` needs to know of inputs, for tensors in the order in which they are rounded."""
        wanted: list[Matrix] = []
        if self.calibration is None or not self.calibration.is_collected_later:  # else of the matrix at work
            first = self.staged
            rest = [tensor for tensor in self.model.tensors if tensor not in first]
            searched = [tensor for tensor in [*first, *rest] if self.searched(tensor)]
            wanted = [matrix for tensor in searched for matrix in self._matrices(tensor)]
        return Factors(
            self.calibration, self.mode.dampening, wanted, threads, output_side=self._looks_at_outputs
        )

    def parts(self, tensor: Tensor, factors: Factors) -> Iterator[Part]:
        """Make the parts of a tensor, in the order in which they are stored."""
        n_bytes = self.n_bytes(tensor)
        type_, scheme = int(self.types[tensor.name]), self._scheme_of(tensor)
        if not self.changes(tensor):
            yield Part(tensor, None, None, n_bytes)
        elif tensor.name in self.lattices:
            yield Part(tensor, self.lattices[tensor.name], None, n_bytes)
        elif self.searched(tensor):
            matrices = self._matrices(tensor)
            for matrix, following in zip_longest(matrices, matrices[1:]):
                factor = factors.of(matrix, following)
                if scheme:
                    rows = self._rows.of(matrix) if scheme.weighs_rows else None
                    if scheme.weighs_tensors:
                        rows = self._rows.whole(matrix) * (np.ones(1) if rows is None else rows)
                    encoder = scheme.searched(tensor.name, factor, rows)
                else:
                    encoder = _core.gptq_encoder(type_, factor)
                yield Part(matrix.tensor, encoder, None, n_bytes // len(matrices))
        else:
            dead = self.calibration is not None and self.calibration.is_dead(tensor.name)
            importance = self.importance.of(tensor) if self.importance and not dead else None
            encoder = _core.scheme_encoder(scheme.kernel()) if scheme else _core.ggml_encoder(type_)
            yield Part(tensor, encoder, importance, n_bytes)

    def with_its_factors(self, tensor: Tensor) -> list[Tensor]:
        """Give tensors that are best written together, as experts of all share the factors of their inputs.

        A .pqz file gives one tensor after the other.
        """
        if self.calibration is None or tensor.n_experts == 1 or tensor.pqz or not self.searched(tensor):
            return [tensor]
        names = self.calibration.sharing(tensor.name)
        return [other for other in self.model.tensors if other.name in names]

    def has_output_side(self, tensor: Tensor) -> bool:
        """Say whether rows of a tensor absorb each other's errors: not of ecsq, nor those looked up."""
        scheme = self._scheme_of(tensor)
        if self.calibration is None or not self.mode.output_side or not self.by_gptq(tensor):
            return False
        if (scheme and scheme.weighs_rows) or self.looks_up(tensor):
            return False
        return tensor.n_experts == 1 and self.calibration.has_output_hessian(tensor.name)

    def row_factor(self, tensor: Tensor, threads: int | None) -> _core.Factor | None:
        """Say how rows of a tensor absorb each other's errors; None: not. Raises ModelFileError."""
        if self.calibration is None or not self.has_output_side(tensor):
            return None
        output_hessian = self.calibration.output_hessian(tensor.name)
        if output_hessian is None or len(output_hessian) != tensor.n_rows:
            raise ModelFileError(
                f"{self.calibration.called}: the output-side Hessian of {tensor.name} is not of "
                f"{tensor.n_rows:,} rows"
            )
        try:
            return row_factor(output_hessian, ROWS, threads=threads)
        except ValueError:
            raise ModelFileError(
                f"{self.calibration.called}: the output-side Hessian of {tensor.name} is not positive "
                f"definite: calibrate anew"
            ) from None

    @cached_property
    def _rows(self) -> RowWeights:
        return RowWeights(self.model, self.calibration)

    def _scheme_of(self, tensor: Tensor) -> Scheme | None:
        """Give the scheme if it makes this tensor's blocks."""
        return self.scheme if self.scheme and self.types[tensor.name] == self.scheme.storage else None

    def _matrices(self, tensor: Tensor) -> list[Matrix]:
        return list(matrices(tensor, _core.columns_together(int(self.types[tensor.name]))))
