"""Write the sums of a calibration: to a Hessian file, and in part as an importance matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.hessian_file import OUTPUT_SIDE, SHRINKAGE, TOKENS
from pyquant.calibration.hessian_rows import RowWriter
from pyquant.calibration.panels import triangle_of, triangle_size
from pyquant.errors import ModelFileError
from pyquant.files.npz import read_npz, replace_npz
from pyquant.files.output_file import OutputFile, partial_of
from pyquant.models.tensor_name import EMBEDDINGS

TIED_OUTPUT = EMBEDDINGS  # what models multiply by that have no output matrix of their own

# Sums of squares (n_groups, n_in) and tokens that are in them (n_groups,), by name.
Squares = dict[str, tuple[NDArray[np.float32], NDArray[np.float64]]]


Arrays = dict[str, NDArray[Any]]

SQUARES, TEXTS = "squares", "texts"  # what is kept beside a Hessian file while it is made


def kept_file(output: Path, called: str) -> Path:
    """Name the file that keeps something for a run that goes on after it was taken."""
    return output.with_name(f".{output.name}.{called}.npz")


def forget(output: Path) -> None:
    """Remove what is kept, of runs that were interrupted too."""
    for called in (SQUARES, TEXTS):
        path = kept_file(output, called)
        for leftover in (path, partial_of(path)):
            leftover.unlink(missing_ok=True)


def not_usable(output: Path, path: Path, why: object) -> ModelFileError:
    """Say that what an interrupted run kept cannot be used."""
    return ModelFileError(
        f"{path}: what an interrupted run kept cannot be used: {why}; remove it and the file "
        f".{output.name}.spool beside it, and calibration begins anew"
    )


def squares_of_texts(output: Path, collector: _core.Collector, batch: int) -> Squares:
    """Take the sums of squares and counts before the first random token, or read them if that is past.

    output: the Hessian file, beside which they are kept.
    batch: the first batch of random tokens.
    Raises ModelFileError: what is kept cannot be used.
    """
    path, arrays = kept_file(output, SQUARES), {}
    if collector.batch <= batch:
        for i in collector.inputs:
            name = i.matrices[0]
            groups = range(i.n_groups)
            arrays[f"{name}.squares"] = np.stack([collector.squares(i, group) for group in groups])
            arrays[f"{name}.counts"] = np.array([collector.count(i, group) for group in groups])
        replace_npz(path, arrays)
        collector.checkpoint(batch)
    try:
        return _squares_of(collector, read_npz(path))
    except (OSError, ValueError, KeyError) as error:
        raise not_usable(output, path, error) from None


def _squares_of(collector: _core.Collector, arrays: Arrays) -> Squares:
    squares = {}
    for i in collector.inputs:
        name = i.matrices[0]
        sums, counts = arrays[f"{name}.squares"], arrays[f"{name}.counts"]
        if (sums.shape, sums.dtype, counts.shape) != ((i.n_groups, i.n_in), np.float32, (i.n_groups,)):
            raise ValueError(f"{name} is not what this model has")
        if not np.isfinite(counts).all():
            raise ValueError(f"{name} has counts that are no numbers")
        squares[name] = sums, counts
    return squares


def not_finite(collector: _core.Collector) -> list[_core.Input]:
    """List the inputs whose sums of squares are not finite: of tokens that are not, or are too large."""
    return [
        i
        for i in collector.inputs
        if not all(np.isfinite(collector.squares(i, group)).all() for group in range(i.n_groups))
    ]


def write_sums(
    file: OutputFile,
    header: _core.Gguf,
    collector: _core.Collector,
    inputs: Sequence[_core.Input],
    squares: Squares,
    kept: NDArray[np.int32],
    shares: Mapping[str, float],
    output_hessians: Mapping[str, NDArray[np.float32]],
) -> None:
    """Write a Hessian file: its header, kept tokens, the sums of inputs, output-side Hessians.

    shares: what `TextMoments.shares` gives.
    """
    rows = RowWriter(file, header)
    for number, chunk in enumerate(np.ascontiguousarray(kept)):
        rows.write(TOKENS, number, chunk)
    for i in inputs:
        name = i.matrices[0]
        sums, n_tokens = squares[name]
        for group in range(i.n_groups):
            rows.write(f"{name}.in_sum2", group, np.ascontiguousarray(sums[group]))
        rows.write(f"{name}.counts", 0, n_tokens)
        if not i.all_hessians:
            continue
        counts = np.array([collector.count(i, group) for group in range(i.n_groups)])
        rows.write(f"{name}.hessian_counts", 0, counts)
        for group in range(i.n_groups):
            triangle, first = np.split(collector.sums(i, group)[i.n_in :], [triangle_size(i.n_in)])
            rows.write(f"{name}.hessian", group, triangle)
            if i.first_tokens:
                rows.write(f"{name}.first", group, first)
        if name in shares:
            rows.write(f"{name}.{SHRINKAGE}", 0, np.array([shares[name]], np.float32))
    for name, hessian in output_hessians.items():
        rows.write(f"{name}.{OUTPUT_SIDE}", 0, triangle_of(hessian))
    rows.finish()


def importance_of(inputs: Sequence[_core.Input], squares: Squares) -> Squares:
    """Give sums of squares and counts by matrix, as an importance matrix has them."""
    importance: Squares = {}
    for i in inputs:
        sums, counts = squares[i.matrices[0]]
        # llama-imatrix has rows and counts of experts only where tokens are routed to them: matrices that all
        # tokens enter, as those of heads, are in one row. It knows no tied output.
        names = [name for name in i.matrices if name != TIED_OUTPUT]
        of_all = (sums.reshape(1, -1), counts[:1])
        importance |= dict.fromkeys(names, (sums, counts) if i.routed else of_all)
    return importance
