"""STATS: the file that holds what entered a model's matrices. docs/calibration.md describes it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.imatrix import ImportanceMatrix, read_imatrix
from pyquant.calibration.panels import full_matrix, triangle_size
from pyquant.calibration.sample import spread
from pyquant.errors import ModelFileError
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_type import TensorType as Type

VERSION = 1
_KEY = "pyquant.calibration"
TOKENS = "tokens"  # the tensor that holds them


@dataclass(frozen=True)
class CalibrationText:
    """A text that a model was run over, or the random tokens after all texts. sha256: of its bytes less
    a newline at the end.

    weight: how much each of its tokens counts. n_chunks: that were used.
    """

    path: str
    sha256: str
    weight: float
    n_chunks: int


@dataclass(frozen=True)
class Origin:
    """What statistics are of. sha256: of the model. chunk_size: tokens that are seen together."""

    sha256: str
    chunk_size: int
    texts: list[CalibrationText]

    @property
    def n_tokens(self) -> int:
        """That the model was given, whatever their weights."""
        return self.chunk_size * sum(text.n_chunks for text in self.texts)


def make_header(origin: Origin, inputs: Iterable[_core.Input], *, n_kept: int) -> _core.Gguf:
    """The header of a STATS file; its tensors' values follow: the tokens of n_kept chunks and, in the order
    of `inputs`, sums of squares, counts and, where they were wanted, moments."""
    header = _core.Gguf()
    header.set_text("general.type", _KEY)
    header.set_u32(f"{_KEY}.version", VERSION)
    header.set_text(f"{_KEY}.model.sha256", origin.sha256)
    header.set_u32(f"{_KEY}.chunk_size", origin.chunk_size)
    header.set_u32(f"{_KEY}.panel", _core.PANEL)
    header.set_text(f"{_KEY}.texts", json.dumps([asdict(text) for text in origin.texts]))
    pairs = [(matrix, i.matrices[0]) for i in inputs for matrix in i.matrices]
    header.set_texts(f"{_KEY}.matrices", [matrix for matrix, _ in pairs])
    header.set_texts(f"{_KEY}.inputs", [name for _, name in pairs])
    header.add_tensor(TOKENS, Type.I32, [origin.chunk_size, n_kept])
    for i in inputs:
        name = i.matrices[0]
        header.add_tensor(f"{name}.in_sum2", Type.F32, [i.n_in, i.n_groups])
        header.add_tensor(f"{name}.counts", Type.F64, [i.n_groups])
        if i.all_moments:
            header.add_tensor(f"{name}.moment_counts", Type.F64, [i.n_groups])
            header.add_tensor(f"{name}.moments", Type.F32, [triangle_size(i.n_in), i.n_groups])
    return header


class Calibration:
    """What entered a model's matrices, read from a STATS file, or from an importance matrix, which has
    the diagonals only.

    origin: what it is of; None of an importance matrix. matrices: the names that it knows.
    """

    def __init__(
        self,
        path: Path,
        origin: Origin | None,
        inputs: dict[str, str],
        tensors: dict[str, Tensor],
        importance: dict[str, tuple[NDArray[np.float64], NDArray[np.float32]]],
    ) -> None:
        self.path = path
        self.origin = origin
        self._inputs = inputs
        self._tensors = tensors
        self._importance = importance

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Calibration:
        """Reads the header; moments are read when they are asked for.

        Raises ModelFileError if the file is cut off, of a later version or of another kind.
        """
        path = Path(path)
        if not _is_stats(path):
            importance = read_imatrix(path)
            known = {name: (importance.counts[name], values) for name, values in importance.weights.items()}
            return cls(path, None, {name: name for name in known}, {}, known)
        file = ModelFile(path)
        version = file.get(f"{_KEY}.version")
        if version != VERSION or file.get(f"{_KEY}.panel") != _core.PANEL:
            raise ModelFileError(
                f"{path}: statistics of version {version}, this pyquant reads {VERSION}; calibrate anew"
            )
        try:
            texts = [CalibrationText(**text) for text in json.loads(file.get(f"{_KEY}.texts"))]
            origin = Origin(file.get(f"{_KEY}.model.sha256"), file.get(f"{_KEY}.chunk_size"), texts)
            inputs = dict(zip(file.get(f"{_KEY}.matrices"), file.get(f"{_KEY}.inputs")))
        except (TypeError, ValueError) as error:
            raise ModelFileError(f"{path}: its header is damaged: {error}") from None
        tensors = {tensor.name: tensor for tensor in file.tensors}
        for name in set(inputs.values()):
            _check_shapes(path, name, tensors)
        return cls(path, origin, inputs, tensors, {})

    @property
    def matrices(self) -> list[str]:
        return list(self._inputs)

    @property
    def sha256(self) -> str | None:
        """Of the model that was run, as sha256sum prints it; None if the file does not say."""
        return self.origin.sha256 if self.origin else None

    @cached_property
    def n_tokens(self) -> int:
        """That the model was given; of an importance matrix, that the matrix met most often was."""
        if self.origin:
            return self.origin.n_tokens
        return int(max(counts.sum() for counts, _ in self._importance.values()))

    def input_of(self, name: str) -> str:
        """The matrix under whose name the statistics of this one's input are. Raises KeyError."""
        return self._inputs[name]

    def importance(self) -> ImportanceMatrix:
        """The diagonals as an importance matrix, for types that compensate nothing."""
        weights = {name: self.diagonal(name) for name in self.matrices}
        counts = {name: self.counts(name) for name in self.matrices}
        texts = [text for text in self.origin.texts if text.sha256] if self.origin else []
        n_chunks = sum(text.n_chunks for text in texts)
        return ImportanceMatrix(self.path, weights, counts, [text.path for text in texts], n_chunks)

    def counts(self, name: str) -> NDArray[np.float64]:
        """(n_experts,) tokens of texts that entered each expert's matrix, times their weights.

        Raises KeyError.
        """
        if name in self._importance:
            return self._importance[name][0]
        return self._array(name, "counts", np.float64)

    def diagonal(self, name: str) -> NDArray[np.float32]:
        """(n_experts, n_in) the mean of x^2 over the texts; 1 for experts that no token entered, as
        llama.cpp has it.

        Raises KeyError.
        """
        if name in self._importance:
            return self._importance[name][1]
        counts = self.counts(name)[:, None]
        sums = self._array(name, "in_sum2", np.float32).reshape(len(counts), -1)
        return np.where(counts > 0, sums / np.where(counts > 0, counts, 1), 1).astype(np.float32)

    def moments(self, name: str, expert: int = 0) -> NDArray[np.float32] | None:
        """(n_in, n_in) the mean of x x^T over the tokens that entered it, each times its weight, random
        ones among them.

        None if only the diagonal is known, or no token entered it. Raises KeyError.
        """
        tensor = self._tensors.get(f"{self._inputs[name]}.moments")
        if tensor is None or (count := self._array(name, "moment_counts", np.float64)[expert]) == 0:
            return None
        offset = tensor.offset + 4 * expert * tensor.n_per_row
        triangle = np.fromfile(tensor.path, np.float32, tensor.n_per_row, offset=offset)
        triangle *= np.float32(1 / count)
        return full_matrix(triangle, self._tensors[f"{self._inputs[name]}.in_sum2"].n_per_row)

    def tokens(self, n_chunks: int) -> NDArray[np.int32]:
        """(n_chunks, n_ctx) some of the tokens that the model was run over, random ones among them; or as
        many as there are. Raises ModelFileError if there are none."""
        tensor = self._tensors.get(TOKENS)
        if tensor is None:
            raise ModelFileError(f"{self.path}: holds no tokens to run the model over; calibrate anew")
        kept = np.fromfile(tensor.path, np.int32, tensor.n_weights, offset=tensor.offset)
        return spread(kept.reshape(-1, tensor.n_per_row), n_chunks)

    def check_model(self, model: ModelFile, sha256: str) -> None:
        """Raises ModelFileError if this is of another model than the one with this hash."""
        if self.sha256 not in (None, sha256):
            raise ModelFileError(
                f"{self.path}: made from another model than {model.path}: its SHA-256 begins with "
                f"{self.sha256[:12]}, this one's with {sha256[:12]}; calibrate this one"
            )

    def check_tokens(self, names: Iterable[str]) -> None:
        """Raises ModelFileError if a matrix met fewer tokens than its rows are long: its moments are
        singular then, and say nothing of most directions. Experts are taken together. An importance
        matrix has no moments, and need not have met as many."""
        for name in names if self.origin else ():
            met, needed = self.counts(name).sum(), self.diagonal(name).shape[1]
            if met < needed:
                raise ModelFileError(
                    f"{self.path}: made from too few tokens: {met:,.0f} entered {name}, whose rows of "
                    f"{needed:,} need as many; calibrate with {self._chunks_for(met, needed)}"
                )

    def _chunks_for(self, met: float, needed: int) -> str:
        if not self.origin or met == 0:
            return "more text"
        n_chunks = sum(text.n_chunks for text in self.origin.texts if text.sha256)
        return f"{int(np.ceil(n_chunks * needed / met)):,} chunks of {self.origin.chunk_size} or more"

    def _array(self, name: str, what: str, kind: type) -> NDArray:
        tensor = self._tensors[f"{self._inputs[name]}.{what}"]
        return np.fromfile(tensor.path, kind, tensor.n_weights, offset=tensor.offset)


def _is_stats(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                return False
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror}") from None
    return ModelFile(path).get("general.type") == _KEY


def _check_shapes(path: Path, name: str, tensors: dict[str, Tensor]) -> None:
    sums, counts = tensors.get(f"{name}.in_sum2"), tensors.get(f"{name}.counts")
    moments = tensors.get(f"{name}.moments")
    if sums is None or counts is None or sums.type is not Type.F32 or counts.type is not Type.F64:
        raise ModelFileError(f"{path}: no sums or counts of {name}, or of another type: it is damaged")
    n_groups = counts.n_weights
    wrong = sums.n_weights != n_groups * sums.n_per_row
    if moments is not None:
        moment_counts = tensors.get(f"{name}.moment_counts")
        wrong |= moment_counts is None or moment_counts.type is not Type.F64
        wrong |= moment_counts is not None and moment_counts.n_weights != n_groups
        wrong |= moments.type is not Type.F32 or moments.n_weights != n_groups * triangle_size(sums.n_per_row)
        wrong |= moments.n_per_row != triangle_size(sums.n_per_row)
    if wrong:
        raise ModelFileError(f"{path}: the sums of {name} disagree in their shapes: it is damaged")
