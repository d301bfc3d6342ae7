"""The format of Hessian files; docs/methods/hessian_statistics.md describes it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError

from pyquant import _core
from pyquant.calibration.hessian_rows import RowReader, add_checksums
from pyquant.calibration.panels import triangle_size
from pyquant.calibration.soundness import LARGEST
from pyquant.errors import ModelFileError
from pyquant.files.json import parse_json
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_type import TensorType as Type

VERSION = 2
KEY = "pyquant.calibration"  # general.type, and before every key
CALLED = f"{KEY}.called"
OUTPUT_SIDE = "output_hessian"  # ending of tensors with an output-side Hessian
SHRINKAGE = "shrinkage"  # ending of tensors with the share of the diagonal that a Hessian is shrunk by
TOKENS = "tokens"  # the tensor that holds them
MOST_LENGTH = 100  # of the logarithm of a squared length: e to this is more than float32 holds


@dataclass(frozen=True)
class CalibrationText:
    """A text that a model was run over, or the random tokens after all texts.

    Attributes
    ----------
    path
        The file, or "random tokens".
    sha256
        The hash of the text less a newline at its end; empty for random tokens.
    weight
        How much each of its tokens counts.
    n_chunks
        Chunks of it that were used.
    """

    path: str
    sha256: str
    weight: Annotated[FiniteFloat, Field(gt=0, le=LARGEST)]
    n_chunks: Annotated[int, Field(gt=0, lt=1 << 31)]


@dataclass(frozen=True)
class Origin:
    """Origin of a Hessian file: its model, texts and options.

    Attributes
    ----------
    sha256
        The hash of the model that was run.
    chunk_size
        Tokens that were seen together.
    texts
        What the model was run over.
    """

    sha256: str
    chunk_size: int
    texts: list[CalibrationText]

    @property
    def n_tokens(self) -> int:
        """Tokens that the model was given, whatever their weights."""
        return self.chunk_size * sum(text.n_chunks for text in self.texts)


@dataclass(frozen=True)
class HessianHeader:
    """The header of a Hessian file."""

    origin: Origin
    # By matrix, the key of its input. Matrices that share an input share a key.
    inputs: dict[str, str]
    rows: RowReader  # the tokens and sums
    # By matrix, the mean logarithm of the squared length of the residual stream that a norm made its
    # input of. Empty for files of versions that did not know it.
    streams: dict[str, float]
    # By tensor, the mean of g^2 over tokens and outputs, g the gradient of a drawn token's negative
    # log-probability. Empty without output-side Hessians.
    gradients: dict[str, float]
    not_finite: list[str]  # matrices whose inputs are not, or are too large, and so are not in the file
    # the file that the statistics follow from, for a temporary one; None: they are this file's own
    called: str | None = None


def has_moments(i: _core.Input) -> bool:
    """Say whether the sums of an input are told apart by text: they are not of experts and heads."""
    return i.all_hessians and i.n_groups == 1


def make_header(
    origin: Origin,
    inputs: Iterable[_core.Input],
    streams: Mapping[str, float],
    gradients: Mapping[str, float],
    not_finite: Sequence[str],
    *,
    n_kept: int,
    several_texts: bool,
    n_out: Mapping[str, int],
    called: Path | None = None,
) -> _core.Gguf:
    """Make the header of a Hessian file.

    Its tensors' values follow: the tokens of n_kept chunks and, in the order of `inputs`, sums of squares,
    counts and, where they were collected, Hessians, the sum of first tokens and, of several texts, the
    share by which the Hessian is shrunk; in the order of `n_out`
    output-side Hessian; and the checksums of all these.

    streams: by matrix, the mean logarithm of the squared length of the residual stream that a norm made its
    input of.
    gradients: by tensor, the mean of its squared gradients; see `HessianHeader`.
    not_finite: matrices whose inputs are not, or are too large.
    n_kept: chunks of tokens that are kept.
    n_out: how many numbers matrices give whose output-side Hessian is known, by their names.
    called: what a temporary file is to be called; None: by its path.
    """
    inputs = list(inputs)
    header = metadata_header(
        origin, {matrix: i.matrices[0] for i in inputs for matrix in i.matrices}, streams, gradients,
        not_finite, called,
    )  # fmt: skip
    header.add_tensor(TOKENS, Type.I32, [origin.chunk_size, n_kept])
    for i in inputs:
        name = i.matrices[0]
        header.add_tensor(f"{name}.in_sum2", Type.F32, [i.n_in, i.n_groups])
        header.add_tensor(f"{name}.counts", Type.F64, [i.n_groups])
        if i.all_hessians:
            header.add_tensor(f"{name}.hessian_counts", Type.F64, [i.n_groups])
            header.add_tensor(f"{name}.hessian", Type.F32, [triangle_size(i.n_in), i.n_groups])
            if i.first_tokens:
                header.add_tensor(f"{name}.first", Type.F32, [i.n_in])
            if several_texts and has_moments(i):
                header.add_tensor(f"{name}.{SHRINKAGE}", Type.F32, [1])
    for name, n in n_out.items():
        header.add_tensor(f"{name}.{OUTPUT_SIDE}", Type.F32, [triangle_size(n)])
    add_checksums(header)
    return header


def metadata_header(
    origin: Origin,
    inputs: Mapping[str, str],
    streams: Mapping[str, float],
    gradients: Mapping[str, float],
    not_finite: Sequence[str],
    called: Path | None = None,
) -> _core.Gguf:
    """Make a header with the metadata of a Hessian file, and without tensors; see `HessianHeader`."""
    header = _core.Gguf()
    header.set_text("general.type", KEY)
    header.set_u32(f"{KEY}.version", VERSION)
    header.set_text(f"{KEY}.model.sha256", origin.sha256)
    header.set_u32(f"{KEY}.chunk_size", origin.chunk_size)
    header.set_u32(f"{KEY}.panel", _core.PANEL)
    header.set_text(f"{KEY}.texts", json.dumps([asdict(text) for text in origin.texts]))
    header.set_text(f"{KEY}.streams", json.dumps(dict(streams)))
    if gradients:
        header.set_text(f"{KEY}.gradients", json.dumps(dict(gradients)))
    header.set_texts(f"{KEY}.matrices", list(inputs))
    header.set_texts(f"{KEY}.inputs", list(inputs.values()))
    if not_finite:
        header.set_texts(f"{KEY}.not_finite", list(not_finite))
    if called is not None:
        header.set_text(CALLED, str(called))
    return header


def is_hessian(file: ModelFile) -> bool:
    """Say whether a GGUF is a Hessian file."""
    return file.get("general.type") == KEY


def read_header(file: ModelFile) -> HessianHeader:
    """Read the header of a Hessian file. Raises ModelFileError: another version, or damaged."""
    path = file.path
    version = file.get(f"{KEY}.version")
    if version != VERSION or file.get(f"{KEY}.panel") != _core.PANEL:
        raise ModelFileError(
            f"{path}: statistics of version {version}, this pyquant reads {VERSION}; calibrate anew"
        )
    rows = RowReader(file)
    try:
        texts = _TEXTS.validate_python(parse_json(file.get(f"{KEY}.texts")))
        sha256, chunk_size = file.get(f"{KEY}.model.sha256"), file.get(f"{KEY}.chunk_size")
        if not isinstance(sha256, str) or not isinstance(chunk_size, int) or not 0 < chunk_size < 1 << 31:
            raise ValueError("no hash of a model, or no size of chunks")
        streams, gradients = (
            _BY_NAME.validate_python(parse_json(file.get(f"{KEY}.{what}") or "{}"))
            for what in ("streams", "gradients")
        )
        matrices, inputs = file.get(f"{KEY}.matrices"), file.get(f"{KEY}.inputs")
        not_finite = file.get(f"{KEY}.not_finite", [])
        if not all(isinstance(names, list) for names in (matrices, inputs, not_finite)):
            raise ValueError("no list of matrices, or none of their inputs")
        if any(abs(length) > MOST_LENGTH for length in streams.values()):
            raise ValueError(f"a residual stream of e to more than {MOST_LENGTH}")
        if not all(name.isprintable() for name in [*matrices, *inputs, *not_finite]):
            raise ValueError("a matrix has no printable name")
    except (TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            reason = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
        raise ModelFileError(f"{path}: its header is damaged: {reason}") from None
    by_matrix = dict(zip(matrices, inputs))
    for name in set(inputs):
        _check_shapes(path, name, rows.tensors)
    called = file.get(CALLED)
    return HessianHeader(
        Origin(sha256, chunk_size, texts),
        by_matrix,
        rows,
        streams,
        gradients,
        not_finite,
        called if isinstance(called, str) else None,
    )


_TEXTS = TypeAdapter(list[CalibrationText])
_BY_NAME = TypeAdapter(dict[str, FiniteFloat])


def _check_shapes(path: Path, name: str, tensors: dict[str, Tensor]) -> None:
    sums, counts = tensors.get(f"{name}.in_sum2"), tensors.get(f"{name}.counts")
    hessian = tensors.get(f"{name}.hessian")
    if sums is None or counts is None or sums.type is not Type.F32 or counts.type is not Type.F64:
        raise ModelFileError(f"{path}: no sums or counts of {name}, or of another type: it is damaged")
    n_groups = counts.n_weights
    wrong = sums.n_weights != n_groups * sums.n_per_row
    if hessian is not None:
        hessian_counts = tensors.get(f"{name}.hessian_counts")
        wrong |= hessian_counts is None or hessian_counts.type is not Type.F64
        wrong |= hessian_counts is not None and hessian_counts.n_weights != n_groups
        wrong |= hessian.type is not Type.F32 or hessian.n_weights != n_groups * triangle_size(sums.n_per_row)
        wrong |= hessian.n_per_row != triangle_size(sums.n_per_row)
    if first := tensors.get(f"{name}.first"):
        wrong |= first.type is not Type.F32 or first.n_weights != sums.n_per_row
    if shrinkage := tensors.get(f"{name}.{SHRINKAGE}"):
        wrong |= shrinkage.type is not Type.F32 or shrinkage.n_weights != 1
    if wrong:
        raise ModelFileError(f"{path}: the sums of {name} disagree in their shapes: it is damaged")
