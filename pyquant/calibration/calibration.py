"""Knowledge of the inputs of a model's matrices, from a Hessian file or an importance matrix."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyquant.calibration.collected import Collected
from pyquant.calibration.hessian_file import (
    OUTPUT_SIDE,
    SHRINKAGE,
    HessianHeader,
    Origin,
    is_hessian,
    read_header,
)
from pyquant.calibration.imatrix import ImportanceMatrix, is_gguf, read_imatrix
from pyquant.calibration.kept_tokens import KeptTokens
from pyquant.calibration.panels import full_matrix, side_of
from pyquant.calibration.shrinkage import go_to_diagonal
from pyquant.calibration.soundness import LARGEST, check_values
from pyquant.errors import ModelFileError
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_name import EMBEDDINGS, OUTPUT


class Calibration:
    """Hessians of a model's matrices from a Hessian file, or diagonals from an importance matrix.

    Matrices are asked for by name, and a name that `matrices` lacks raises KeyError.

    Attributes
    ----------
    path
        The file.
    called
        What to call it: of a temporary file, the one that its statistics follow from.
    origin
        Where it comes from; None for an importance matrix.
    gradients
        By tensor: the mean of g^2 over tokens and outputs, g the gradient of a drawn token's negative
        log-probability by what the tensor gives. Empty where none were made.
    not_finite
        Names of matrices whose inputs are not, or are too large; `matrices` has none of them.
    kept
        Tokens that the file keeps, none of an importance matrix.
    """

    path: Path
    called: Path
    origin: Origin | None
    gradients: dict[str, float]
    not_finite: list[str]
    kept: KeptTokens

    def __init__(self, path: Path, contents: HessianHeader | ImportanceMatrix) -> None:
        self.path = self.called = path
        self._imatrix = contents if isinstance(contents, ImportanceMatrix) else None
        self._rows = contents.rows if isinstance(contents, HessianHeader) else None
        self._inputs: dict[str, str]
        self._streams: dict[str, float]
        if isinstance(contents, HessianHeader):
            self.origin, self._inputs, self._streams = contents.origin, contents.inputs, contents.streams
            self.called, self.not_finite = Path(contents.called or path), contents.not_finite
            self.gradients = contents.gradients
        else:
            self.origin, self._inputs = None, {name: name for name in contents.weights}
            self._streams, self.gradients, self.not_finite = {}, {}, []
        self.kept = KeptTokens(self._rows, self.origin, self.called)
        self._held: dict[str, Collected] = {}  # by input

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Calibration:
        """Read the header; Hessians are read when they are asked for.

        Parameters
        ----------
        path
            A Hessian file, or an importance matrix.

        Raises
        ------
        ModelFileError
            The file is cut off, of a later version or of another sort.
        """
        path = Path(path)
        if not is_gguf(path):
            return cls(path, read_imatrix(path))
        file = ModelFile(path)
        return cls(path, read_header(file) if is_hessian(file) else read_imatrix(file))

    @property
    def matrices(self) -> list[str]:
        """Names of the matrices whose inputs are known."""
        return list(self._inputs)

    @property
    def sha256(self) -> str | None:
        """The hash of the model that was run, as sha256sum prints it; None if the file does not say."""
        return self.origin.sha256 if self.origin else None

    @cached_property
    def n_tokens(self) -> int:
        """Tokens that the model was given; of an importance matrix, that met its busiest matrix."""
        if self._imatrix is not None:
            return int(max(counts.sum() for counts in self._imatrix.counts.values()))
        return self.origin.n_tokens if self.origin else 0

    def check_rows(self) -> None:
        """Compare all rows of a Hessian file with their checksums. Raises UnreadableFile."""
        if self._rows is not None:
            self._rows.check()

    @property
    def digest(self) -> bytes:
        """What tells its content from that of other files: checksums, or an importance matrix' bytes."""
        return self._rows.digest if self._rows else self.path.read_bytes()

    def input_of(self, name: str) -> str:
        """Give the key of a matrix's input. Matrices that share an input share a key."""
        return self._inputs[name]

    def sharing(self, name: str) -> list[str]:
        """Give the matrices that share a matrix's input, itself among them."""
        return [other for other, stored in self._inputs.items() if stored == self._inputs[name]]

    def importance(self) -> ImportanceMatrix:
        """Give the diagonals as an importance matrix, for types that GPTQ does not round to."""
        if self._imatrix is not None:
            return self._imatrix
        weights = {name: self.diagonal(name) for name in self.matrices}
        counts = {name: self.counts(name) for name in self.matrices}
        texts = [text for text in self.origin.texts if text.sha256] if self.origin else []
        n_chunks = sum(text.n_chunks for text in texts)
        return ImportanceMatrix(self.called, weights, counts, [text.path for text in texts], n_chunks)

    def enters_stream(self, name: str) -> float | None:
        """Give the size of the residual stream that a matrix's outputs are added to, a robust mean.

        As the next norm divides it, of a matrix that no norm precedes.

        Returns
        -------
        The squared length of a token's stream: e to its mean logarithm. None where a norm precedes the
        matrix, or nothing is known of the residual stream.
        """
        streams = {self._inputs.get(matrix, matrix): size for matrix, size in self._streams.items()}
        if not streams or self._inputs[name] in streams:
            return None
        names = list(self._inputs)
        after = [self._inputs[later] for later in names[names.index(name) :]]
        outside = [streams[key] for key in streams if key not in self._inputs.values()]  # the output's
        ahead = [streams[key] for key in after if key in streams] + outside
        return float(np.exp(ahead[0])) if ahead else None

    def counts(self, name: str) -> NDArray[np.float64]:
        """Give how many tokens of texts entered each expert's matrix, times their weights.

        Returns
        -------
        (n_experts,) float64
            An importance matrix may have one count for all experts.
        """
        if self._imatrix is not None:
            return self._imatrix.counts[name]
        counts = self._all(name, "counts", np.float64)[0]
        check_values(self.path, f"the counts of tokens that entered {name}", counts)
        return counts

    def loads(self, tensor: Tensor) -> NDArray[np.float64]:
        """Give how many tokens of texts entered each expert's matrix, over their mean.

        Returns
        -------
        (n_experts,) float64
            0 for experts that no token entered; all 1 where nothing is known of them.
        """
        counts = self.counts(tensor.name) if tensor.name in self._inputs else np.empty(0)
        known = len(counts) == tensor.n_experts and counts.any()
        return counts / counts.mean() if known else np.ones(tensor.n_experts)

    def diagonal(self, name: str) -> NDArray[np.float32]:
        """Give the mean of x^2 over the texts, x what enters the matrix.

        Returns
        -------
        (n_experts, n_in) float32
            1 for experts that no token entered, as llama.cpp has it.
        """
        if self._imatrix is not None:
            return self._imatrix.weights[name]
        counts = self.counts(name)[:, None]
        sums = self._all(name, "in_sum2", np.float32).reshape(len(counts), -1)
        with np.errstate(all="ignore"):  # what comes out infinite is refused
            means = np.where(counts > 0, sums / np.where(counts > 0, counts, 1), 1).astype(np.float32)
        check_values(self.path, f"the sums of squares of what enters {name}", means)
        return means

    @cached_property
    def is_collected_later(self) -> bool:
        """Say whether Hessians are collected while a model is rounded: the file has tokens, and diagonals."""
        return self.kept.are_there and not any(self._stores_hessian(name) for name in self._inputs)

    def hold(self, name: str, collected: Collected) -> None:
        """Take what was collected of a matrix's input, in the place of what was before."""
        self._held = {self._inputs[name]: collected}

    def drop(self) -> None:
        """Drop what was collected, before more is."""
        self._held = {}

    def has_hessian(self, name: str) -> bool:
        """Say whether a matrix's Hessian is known, for one expert at least, and of enough tokens."""
        known = bool((self._hessian_counts(name) > 0).any()) and not self.is_dead(name)
        return known and self._why_too_few(name) is None

    def is_dead(self, name: str) -> bool:
        """Say whether all that entered a matrix was zero, as behind a part of the model that does nothing."""
        return self._inputs.get(name) in self._dead

    @cached_property
    def _dead(self) -> set[str]:
        if self._imatrix is not None:
            return set()
        names = {stored: name for name, stored in self._inputs.items()}  # one of each input
        return {stored for stored, name in names.items() if not self.diagonal(name).any()}

    def why_no_hessian(self, name: str) -> str | None:
        """Say why Hessian statistics of a matrix's input are not known; None if they are, for all experts."""
        if name not in self._inputs:
            if name in self.not_finite:
                return "what enters it is not finite, or too large"
            collects = "; `pyquant calibrate --process-output` does that" if name == OUTPUT else ""
            return f"its input was not collected{collects}"
        if self._imatrix is not None:
            return "an importance matrix has no Hessian statistics"
        counts = self._hessian_counts(name)
        if not len(counts):
            return "Hessian statistics of its input were not collected"
        if self.is_dead(name):
            return "only zeros entered it"
        if why := self._why_too_few(name):
            return why
        n_unseen = int((counts == 0).sum())
        if not n_unseen:
            return None
        tokens = "token whose squares were summed up" if self.is_collected_later else "token"
        return f"no {tokens} entered {n_unseen} of its {len(counts)} experts"

    def _hessian_counts(self, name: str) -> NDArray[np.float64]:
        """(n_experts,) weighted tokens in the Hessians; (0,) where there are none."""
        if name in self._inputs and self.is_collected_later:
            return self.counts(name)  # of the texts' tokens, of which those that are kept are a sample
        if not self._stores_hessian(name):
            return np.empty(0)
        counts = self._all(name, "hessian_counts", np.float64)[0]
        check_values(self.path, f"the counts of tokens in the Hessian statistics of {name}", counts)
        return counts

    def _stores_hessian(self, name: str) -> bool:
        return self._rows is not None and f"{self._inputs.get(name)}.hessian" in self._rows.tensors

    def hessian(self, name: str, expert: int = 0) -> NDArray[np.float32] | None:
        """Give the mean of x x^T over the tokens that entered a matrix, each times its weight, shrunk.

        Random tokens are among them. It is shrunk where it is of several texts, or collected.

        Returns
        -------
        (n_in, n_in) float32
            None if only the diagonal is known or held, or no token entered the expert.

        Raises
        ------
        ModelFileError
            They are damaged or not finite.
        """
        called, stored = f"the Hessian statistics of what enters {name}", self._inputs[name]
        if self.is_collected_later:
            held = self._held.get(stored)
            hessian = held.hessian(expert) if held else None
            if hessian is not None:
                check_values(self.path, called, hessian, least=-LARGEST)
            return hessian
        counts = self._hessian_counts(name)
        if self._rows is None or not len(counts) or counts[expert] == 0:
            return None
        triangle = self._rows.read(f"{stored}.hessian", np.float32, expert, 1)[0]
        with np.errstate(all="ignore"):  # what comes out infinite is refused
            triangle *= np.float32(1 / counts[expert])
        check_values(self.path, called, triangle, least=-LARGEST)
        hessian = full_matrix(triangle, self._rows.tensors[f"{stored}.in_sum2"].n_per_row)
        if f"{stored}.{SHRINKAGE}" in self._rows.tensors:
            share = self._rows.read(f"{stored}.{SHRINKAGE}", np.float32)[0, 0].item()
            if not 0 <= share <= 1:
                raise ModelFileError(f"{self.path}: {called} are shrunk by {share}, which is not from 0 to 1")
            go_to_diagonal(hessian, share)
        return hessian

    def first_token(self, name: str) -> NDArray[np.float32] | None:
        """Give the mean of x over the first tokens of chunks, each times its weight, x what enters a matrix.

        Random tokens are among them.

        Returns
        -------
        (n_in,) float32
            None if it was not collected.

        Raises
        ------
        ModelFileError
            It is damaged or not finite.
        """
        if (held := self._held.get(self._inputs[name])) is not None:
            return held.first
        stored = f"{self._inputs[name]}.first"
        if self._rows is None or self.origin is None or stored not in self._rows.tensors:
            return None
        n_first = sum(text.weight * text.n_chunks for text in self.origin.texts)
        with np.errstate(all="ignore"):  # what comes out infinite is refused
            mean = self._rows.read(stored, np.float32)[0] * np.float32(1 / n_first)
        check_values(self.path, f"first tokens, as they enter {name},", mean, least=-LARGEST)
        return mean

    def has_output_hessian(self, name: str) -> bool:
        """Say whether a matrix's output-side Hessian is known."""
        return self._rows is not None and f"{name}.{OUTPUT_SIDE}" in self._rows.tensors

    def looks_up(self, name: str) -> bool:
        """Say whether a tensor's rows are looked up, and it is known what their errors do.

        `output_hessian` is then in the place of a Hessian: rows are not multiplied by anything.
        """
        return name == EMBEDDINGS and name not in self._inputs and self.has_output_hessian(name)

    def output_hessian(self, name: str) -> NDArray[np.float32] | None:
        """Give a matrix's output-side Hessian.

        Returns
        -------
        (n_out, n_out) float32
            None if they were not followed back to it.

        Raises
        ------
        ModelFileError
            They are damaged or not finite.
        """
        stored = f"{name}.{OUTPUT_SIDE}"
        if self._rows is None or stored not in self._rows.tensors:
            return None
        triangle = self._rows.read(stored, np.float32)[0]
        check_values(self.path, f"the output-side Hessian of {name}", triangle, least=-LARGEST)
        n = side_of(len(triangle))
        if n is None:
            raise ModelFileError(
                f"{self.path}: the output-side Hessian of {name} is no matrix: it is damaged"
            )
        return full_matrix(triangle, n)

    def _all(self, name: str, what: str, dtype: type) -> NDArray[Any]:
        assert self._rows is not None
        return self._rows.read(f"{self._inputs[name]}.{what}", dtype)

    @property
    def has_streams(self) -> bool:
        """Say whether the sizes of the residual stream are known."""
        return bool(self._streams)

    def check_model(self, model: ModelFile, sha256: str) -> None:
        """Refuse a model that the calibration is not of.

        Parameters
        ----------
        model, sha256
            The model and its hash.

        Raises
        ------
        ModelFileError
            The calibration is of a model with another hash, or with matrices of another width.
        """
        if self.sha256 is not None and self.sha256 != sha256:
            raise ModelFileError(
                f"{self.path}: made from another model than {model.path}: its SHA-256 begins with "
                f"{self.sha256[:12]}, this one's with {sha256[:12]}; calibrate this one"
            )
        for tensor in model.tensors:
            n = self._n_columns(tensor.name)
            # llama-quantize passes over embeddings of another width too.
            if n and n != tensor.n_experts * tensor.n_per_row and not tensor.name.endswith(EMBEDDINGS):
                raise ModelFileError(
                    f"{self.path}: {n} columns of tensor {tensor.name!r}, which has {tensor.n_experts} x "
                    f"{tensor.n_per_row}: made from another model than {model.path}; calibrate this one"
                )

    def _n_columns(self, name: str) -> int:
        """Count the columns of a matrix, of all its experts; 0: its input is not known."""
        if name not in self._inputs:
            return 0
        if self._rows is None:
            return self.diagonal(name).size
        return self._rows.tensors[f"{self._inputs[name]}.in_sum2"].n_weights

    def _why_too_few(self, name: str) -> str | None:
        """Say if a matrix met fewer tokens than its rows are long, experts taken together; None: it did not.

        Its Hessian is singular, and says nothing of most directions.
        """
        if self._rows is None:
            return None
        met = self.counts(name).sum()
        needed = self._rows.tensors[f"{self._inputs[name]}.in_sum2"].n_per_row
        if met >= needed:
            return None
        more = self._chunks_for(met, needed)
        return f"{met:,.0f} tokens are too few for rows of {needed:,}; calibrate with {more}"

    def _chunks_for(self, met: float, needed: int) -> str:
        if not self.origin or met == 0:
            return "more text"
        n_chunks = sum(text.n_chunks for text in self.origin.texts if text.sha256)
        return f"{int(np.ceil(n_chunks * needed / met)):,} chunks of {self.origin.chunk_size} or more"


# Types that functions of the library take as a calibration.
AnyCalibration: TypeAlias = Calibration | str | os.PathLike[str]


def open_calibration(calibration: AnyCalibration) -> Calibration:
    """Read a calibration by its path, or hand one on that was read.

    Raises ModelFileError: the file cannot be read.
    """
    return calibration if isinstance(calibration, Calibration) else Calibration.read(calibration)
