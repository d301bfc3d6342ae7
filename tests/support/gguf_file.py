"""A GGUF written to its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, Union

from gguf import GGUFWriter

Value: TypeAlias = Union[bool, float, int, str, list[bool], list[int]]


def add_keys(writer: GGUFWriter, keys: Mapping[str, Value]) -> None:
    """Add metadata, each number or list in the type that its value has in Python; numbers are of 32 bits."""
    for key, value in keys.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_uint32(key, value)


def finish(writer: GGUFWriter) -> None:
    """Write metadata and tensors, and close the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
