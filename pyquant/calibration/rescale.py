"""Write the statistics of a model whose inputs were scaled by powers of two, without running it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant.calibration.hessian_file import OUTPUT_SIDE, is_hessian, metadata_header, read_header
from pyquant.calibration.hessian_rows import CHECKSUMS, RowWriter, add_checksums
from pyquant.calibration.panels import scale_triangle
from pyquant.errors import ConfigError
from pyquant.files.output_file import OutputFile
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import file_bytes
from pyquant.models.tensor_type import TensorType as Type

NUMPY = {Type.F32: np.float32, Type.F64: np.float64, Type.I32: np.int32}


def rescale_stats(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    exponents: Mapping[str, NDArray[np.int8]],
    of_outputs: Mapping[str, NDArray[np.int8]],
    sha256: str,
    *,
    called: Path | None = None,
    force: bool = False,
) -> None:
    """Write the statistics that a model has after its inputs were scaled.

    Sums of powers of two times numbers are powers of two times sums. So these are the bytes that `pyquant
    calibrate` would write for that model, as long as no number leaves the range of its type. Two things are
    not: output-side Hessians of matrices whose outputs are scaled, as tokens keep the weights that they had
    there, and gradients, which are left out.

    Parameters
    ----------
    output
        The Hessian file to write. It appears complete or not at all.
    exponents
        By matrix: (n_experts or 1, n_in) int8; what enters is 2 to this times as large. Others stay.
    of_outputs
        By matrix: (n_experts, n_out) int8; what it gives is 2 to this times as large. Others stay.
    sha256
        The hash of the model that has such inputs.
    called
        The file that users and quantized models are to be told of in place of `output`, a temporary file.

    Raises
    ------
    ModelFileError
        `source` cannot be read.
    ConfigError
        `source` is an importance matrix.
    OutputError
        `output` cannot be written.
    """
    file = ModelFile(source)
    if not is_hessian(file):
        raise ConfigError(f"{file.path}: expected what `pyquant calibrate` writes, with Hessian statistics")
    stats = read_header(file)
    by_input = {stats.inputs[matrix]: of_input for matrix, of_input in exponents.items()}
    tensors = sorted((t for t in file.tensors if t.name != CHECKSUMS), key=lambda tensor: tensor.offset)
    header = metadata_header(
        replace(stats.origin, sha256=sha256), stats.inputs, stats.streams, {}, stats.not_finite, called
    )  # what outputs are scaled by changes their gradients
    for tensor in tensors:
        header.add_tensor(tensor.name, int(tensor.type), tensor.shape)
    add_checksums(header)
    with OutputFile(Path(output), file_bytes(header), sources=[file.path], force=force) as out:
        rows = RowWriter(out, header)
        for tensor in tensors:
            name, _, what = tensor.name.rpartition(".")
            of_input = by_input.get(name)
            if what == OUTPUT_SIDE:  # the larger a number, the less it matters that it changes by 1
                of_input = -of_outputs[name] if name in of_outputs else None
            for row in range(tensor.n_rows):
                values = stats.rows.read(tensor.name, NUMPY[tensor.type], row, 1)[0]
                if of_input is not None:
                    values = _scaled(what, values, of_input[min(row, len(of_input) - 1)])
                rows.write(tensor.name, row, values)
        rows.finish()
        out.commit()


def _scaled(what: str, values: NDArray[np.float32], exponents: NDArray[np.int8]) -> NDArray[np.float32]:
    if what in ("hessian", OUTPUT_SIDE):
        return scale_triangle(values, exponents)
    if what in ("in_sum2", "first"):
        return np.ldexp(values, (2 if what == "in_sum2" else 1) * exponents)
    return values  # counts
