"""Make an unquantized model of a quantized one: the weights that its blocks stand for, as floats."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pyquant.errors import ConfigError
from pyquant.models.conversion import Converted
from pyquant.models.model_file import AnyModel
from pyquant.models.progress import Progress
from pyquant.models.tensor import UNQUANTIZED
from pyquant.models.tensor_type import TensorType as Type
from pyquant.rounding.quantize_model import quantize_model
from pyquant.rounding.result import errors_of
from pyquant.rounding.shards import Split
from pyquant.schemes.settings import make_mode

FLOAT_TYPES = ("F16", "BF16", "F32")


@dataclass(frozen=True, kw_only=True)
class DequantizeResult(Converted):
    """Result of dequantizing.

    Attributes
    ----------
    type
        What quantized tensors are now.
    tensors
        How many tensors of each quantized type became floats, by the type's name.
    rmse
        What rounding to `type` added to the weights: root mean square, in units of weights; None where no
        tensor got another type.
    """

    SCHEMA = "pyquant.dequantize/1"

    type: str
    tensors: dict[str, int]
    rmse: float | None


def dequantize_model(
    source: AnyModel,
    output: str | os.PathLike[str],
    type: str = "F16",
    *,
    threads: int | None = None,
    force: bool = False,
    split: Split | None = None,
    progress: Progress | None = None,
) -> DequantizeResult:
    """Write the weights of a quantized model as floats.

    The file is what `llama-quantize --allow-requantize` makes for the same type, but for metadata under
    `pyquant.`, which say of blocks what is true no longer.

    Parameters
    ----------
    source
        A path, or an opened model: of any types, whole or split, GGUF or pqz.
    output
        The GGUF to write. It appears complete or not at all.
    type
        F16, BF16 or F32. Weights are rounded to the nearest; those that F16 cannot hold are refused.
    threads
        None: one for each core. The file does not depend on it.
    force
        Replace an existing `output`.
    split
        Write shards, as `quantize_model` does.
    progress
        Called while it goes on.

    Raises
    ------
    ModelFileError
        The model cannot be read, or a weight is too large for fp16. The message names tensor and weight.
    ConfigError
        `type` is no type of floats.
    OutputError
        `output` cannot be written.
    """
    if type not in FLOAT_TYPES:
        raise ConfigError(f"type: expected F16, BF16 or F32, got {type!r}")
    mode = make_mode({"mode": f"ggml:{type}", "requantize": True})
    done = quantize_model(source, output, mode, threads=threads, force=force, split=split, progress=progress)
    tensors: dict[str, int] = {}
    for tensor in done.tensors:
        if tensor.quantized and Type[tensor.source_type] not in UNQUANTIZED:
            tensors[tensor.source_type] = tensors.get(tensor.source_type, 0) + 1
    return DequantizeResult(
        source=done.source,
        output=done.output,
        type=type,
        source_bytes=done.source_bytes,
        output_bytes=done.output_bytes,
        tensors=tensors,
        rmse=errors_of(done.tensors)["rmse"],
        seconds=done.seconds,
    )
