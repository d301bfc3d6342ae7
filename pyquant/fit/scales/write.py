"""Write a quantized model with rows and norms multiplied by factors: all else is copied."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.files.output_files import OutputFiles
from pyquant.models.block_scales import times_rows
from pyquant.models.header import ALIGNMENT_KEY, copied_header
from pyquant.models.model_file import ModelFile
from pyquant.models.shard import read_shard
from pyquant.models.tensor import file_bytes
from pyquant.models.tensor_reader import TensorReader
from pyquant.rounding.metadata import METHOD, TRAINED_SCALES
from pyquant.rounding.shards import shard_paths


def write_scaled(
    model: ModelFile,
    output: Path,
    factors: Mapping[str, NDArray[np.float32]],
    *,
    threads: int | None = None,
    force: bool = False,
) -> list[Path]:
    """Write the model, into as many shards as it has.

    output: the file; shards have longer names. They appear complete or not at all.
    factors: by tensor, as `times_rows` takes them.
    Returns: the files. Raises OutputError, ModelFileError.
    """
    paths = [output] if len(model.paths) == 1 else shard_paths(output, len(model.paths))
    headers = [_header(model, path) for path in model.paths]
    sizes = [(path, file_bytes(header)) for path, header in zip(paths, headers)]
    with (
        OutputFiles(sizes, sources=model.paths, force=force) as files,
        TensorReader(model, model.tensors, threads, None) as reader,
    ):
        offsets: dict[str, tuple[int, int]] = {}
        for number, header in enumerate(headers):
            begin = header.header()
            files[number].write(begin, 0)
            offsets |= {name: (number, len(begin) + offset) for name, _, _, offset, _ in header.tensors()}
        for tensor in model.tensors:
            number, offset = offsets[tensor.name]
            if tensor.name in factors:
                files[number].write(times_rows(tensor, factors[tensor.name]).data.cast("B"), offset)
            else:
                reader.run(tensor, out_file=files[number].fileno(), out_offset=offset)
        files.commit()
    return paths


def _header(model: ModelFile, path: Path) -> _core.Gguf:
    entries: dict[str, str | int] = {}
    if path == model.path:
        done = model.get(METHOD)
        entries[METHOD] = f"{done}, {TRAINED_SCALES}" if done else TRAINED_SCALES
    in_file = (tensor for tensor in model.tensors if tensor.path == path)
    return copied_header(read_shard(path, model.header).header, in_file, [ALIGNMENT_KEY], entries)
