"""From 4-bit codes and tables back to the stock file that any llama.cpp runs, bit for bit."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from pyquant import _core
from pyquant.errors import ModelFileError
from pyquant.files.output_file import OutputFile, check_output
from pyquant.models.header import set_metadata
from pyquant.models.model_file import ModelFile, Tensor, padded
from pyquant.models.q4_t import STOCK_FILE_TYPES, is_table_entry
from pyquant.models.tensor_reader import Progress

CHUNK = 1 << 22  # bytes, of whole blocks of every type that is read


def unpack_q4_t(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> int:
    """Writes a file that was quantized with codes packed as it were with its values stored.

    Returns the size of `output` in bytes, which appears complete or not at all, and is replaced only
    with `force`. Raises ModelFileError, also where no codes are packed, and OutputError.
    """
    model = ModelFile(source)
    check_output(Path(output), sources=model.paths, force=force)
    if not any(tensor.table for tensor in model.tensors):
        raise ModelFileError(f"{model.path}: has no packed codes (tensors of type Q4_T) to unpack")
    header = _stock_header(model)
    begin = len(header.header())
    size = begin + sum(padded(_stock_bytes(tensor)) for tensor in model.tensors)
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
    return size


def _stock_bytes(tensor: Tensor) -> int:
    kind = tensor.table.stock if tensor.table else tensor.type
    return tensor.n_rows * _core.row_bytes(int(kind), tensor.n_per_row)


def _chunks(tensor: Tensor):
    with tensor.path.open("rb", buffering=0) as file:
        file.seek(tensor.offset)
        step = CHUNK // 18 * 18 if tensor.table else CHUNK
        for left in range(tensor.n_bytes, 0, -step):
            data = file.read(min(step, left))
            if tensor.table:
                stock = getattr(_core.Storage, tensor.table.stock.name)
                data = _core.expand(tensor.table.array(), stock, np.frombuffer(data, np.uint8)).tobytes()
            yield data


def _stock_header(model: ModelFile) -> _core.Gguf:
    """The header as quantization would have written it, to the order of the keys."""
    header = _core.Gguf()
    header.copy_keys(model.header)
    for key in model.keys:
        if is_table_entry(key):
            header.remove(key)
    stock = next(tensor.table.stock for tensor in model.tensors if tensor.table)
    header.set_u32("general.file_type", int(STOCK_FILE_TYPES[stock]))
    in_order = header.keys()
    ours = [key for key in in_order if key.startswith(("quantize.imatrix.", "pyquant."))]
    set_metadata(header, {key: model.get(key) for key in ours})
    for tensor in model.tensors:
        kind = tensor.table.stock if tensor.table else tensor.type
        header.add_tensor(tensor.name, int(kind), tensor.shape)
    return header
