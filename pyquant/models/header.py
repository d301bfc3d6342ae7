"""Write metadata into a GGUF header."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Mapping

from gguf import GGUFValueType

from pyquant import _core
from pyquant.models.pqz.pqz_file import path_of, scratch_errors, scratch_file
from pyquant.models.tensor import Tensor

SPLIT_KEYS = {
    "split.no": ("H", GGUFValueType.UINT16),
    "split.count": ("H", GGUFValueType.UINT16),
    "split.tensors.count": ("i", GGUFValueType.INT32),
}
# Keys that say how the source is laid out. llama-quantize keeps the alignment, lays out its file by
# the default nevertheless, and then no reader finds the tensors.
ALIGNMENT_KEY = "general.alignment"
LAYOUT_KEYS = (ALIGNMENT_KEY, *SPLIT_KEYS)
EQUALIZED_FROM = "pyquant.equalized_from"  # the hash of the model whose channels had other scales


def set_metadata(header: _core.Gguf, entries: dict[str, str | int]) -> None:
    """Set metadata, texts and integers, in the order of `entries`."""
    for key, value in entries.items():
        header.set_text(key, value) if isinstance(value, str) else header.set_u32(key, value)


def copied_header(
    header: _core.Gguf, tensors: Iterable[Tensor], without: Iterable[str], entries: dict[str, str | int]
) -> _core.Gguf:
    """Make the header of a file that has some tensors, and the keys of another one's header.

    without: keys that are left out. entries: metadata that are set beside.
    """
    made = _core.Gguf()
    made.copy_keys(header)
    for key in without:
        made.remove(key)
    set_metadata(made, entries)
    for tensor in tensors:
        made.add_tensor(tensor.name, int(tensor.type), tensor.shape)
    return made


def split_keys(values: Mapping[str, int]) -> _core.Gguf:
    """Make the keys of a shard, in their order and in the types in which alone llama.cpp reads them."""
    data = struct.pack("<4sIqq", b"GGUF", 3, 0, len(values))  # version 3, no tensors
    for key, value in values.items():
        code, type_ = SPLIT_KEYS[key]
        data += struct.pack(f"<q{len(key)}sI{code}", len(key), key.encode(), type_, value)
    with scratch_file() as file:
        with scratch_errors("the metadata"):
            file.write(data)
            file.flush()
        return _core.Gguf.read(os.fsencode(path_of(file)))  # type: ignore[arg-type] # a name need not be UTF-8
