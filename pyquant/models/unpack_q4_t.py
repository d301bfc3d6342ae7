"""Rewrite a Q4_T file as the stock file that it equals, which any llama.cpp runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np

from pyquant import _core
from pyquant.errors import ModelFileError
from pyquant.files.output_file import OutputFile
from pyquant.models.conversion import Conversion, Converted
from pyquant.models.header import LAYOUT_KEYS, set_metadata
from pyquant.models.model_file import AnyModel, ModelFile, open_model
from pyquant.models.pqz.pqz_file import scratch_file
from pyquant.models.progress import Progress
from pyquant.models.q4_t import STOCK_FILE_TYPES, is_table_entry
from pyquant.models.tensor import Tensor, file_bytes, padded
from pyquant.models.tensor_type import TensorType as Type

CHUNK = 1 << 22  # bytes that are read together


@dataclass(frozen=True, kw_only=True)
class UnpackQ4TResult(Converted):
    """Result of rewriting a Q4_T model as a stock one.

    Attributes
    ----------
    n_tensors
        Tensors of type Q4_T that were rewritten.
    type
        The stock type that they have now.
    """

    SCHEMA = "pyquant.unpack_q4_t/1"

    n_tensors: int
    type: str


def unpack_q4_t(
    source: AnyModel,
    output: str | os.PathLike[str],
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> UnpackQ4TResult:
    """Rewrite a Q4_T file as the file that `--store stock` would have produced, byte for byte.

    Parameters
    ----------
    source
        A path, or an opened model.
    output
        The GGUF to write. It appears complete or not at all.
    force
        Replace an existing `output`.
    progress
        Called while it goes on.

    Raises
    ------
    ModelFileError
        The file cannot be read, or has no tensor of type Q4_T.
    OutputError
        `output` cannot be written.
    """
    model = open_model(source)
    work = Conversion(model.paths, output, force=force)
    tables = [tensor.table for tensor in model.tensors if tensor.table]
    if not tables:
        raise ModelFileError(f"{model.path}: has no 4-bit codes (tensors of type Q4_T) to unpack")
    header = _stock_header(model, tables[0].stock)
    begin = len(header.header())
    size = file_bytes(header)
    done, total = 0, sum(tensor.n_bytes for tensor in model.tensors)
    with OutputFile(output, size, sources=model.paths, force=force) as file:
        file.write(header.header(), 0)
        for tensor in model.tensors:
            at = begin
            for chunk in _chunks(tensor):
                file.write(chunk, at)
                at += len(chunk)
                if progress:
                    progress(done + tensor.n_bytes * (at - begin) // _stock_bytes(tensor), total, tensor.name)
            done += tensor.n_bytes
            begin += padded(_stock_bytes(tensor))
        file.commit()
    return work.result(
        UnpackQ4TResult,
        source_bytes=model.n_bytes,
        output_bytes=size,
        n_tensors=len(tables),
        type=tables[0].stock.name,
    )


def _stock_type(tensor: Tensor) -> Type:
    return tensor.table.stock if tensor.table else tensor.type


def _stock_bytes(tensor: Tensor) -> int:
    return tensor.n_rows * _core.row_bytes(int(_stock_type(tensor)), tensor.n_per_row)


def _chunks(tensor: Tensor) -> Iterator[bytes]:
    with _opened(tensor) as file:
        step = CHUNK // 18 * 18 if tensor.table else CHUNK  # whole blocks of Q4_T
        for left in range(tensor.n_bytes, 0, -step):
            data = file.read(min(step, left))
            if tensor.table:
                stock = getattr(_core.Storage, tensor.table.stock.name)
                data = _core.expand(tensor.table.array(), stock, np.frombuffer(data, np.uint8)).tobytes()
            yield data


def _opened(tensor: Tensor) -> IO[bytes]:
    """Open a file at the beginning of the tensor's data."""
    if tensor.pqz is None:
        file: IO[bytes] = tensor.path.open("rb", buffering=0)
        file.seek(tensor.offset)
        return file
    file = scratch_file()
    tensor.pqz.expand_tensor(tensor.name, file.fileno(), threads=1)
    return file


def _stock_header(model: ModelFile, stock: Type) -> _core.Gguf:
    """Make the header that quantization would have written, to the order of the keys."""
    header = _core.Gguf()
    header.copy_keys(model.header)
    for key in (*LAYOUT_KEYS, *filter(is_table_entry, model.keys)):
        header.remove(key)
    header.set_u32("general.file_type", int(STOCK_FILE_TYPES[stock]))
    in_order = header.keys()
    ours = [key for key in in_order if key.startswith(("quantize.imatrix.", "pyquant."))]
    set_metadata(header, {key: model.get(key) for key in ours})
    for tensor in model.tensors:
        header.add_tensor(tensor.name, int(_stock_type(tensor)), tensor.shape)
    return header
