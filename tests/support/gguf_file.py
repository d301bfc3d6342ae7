"""A GGUF written to its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, Union

from gguf import GGUFWriter

Value: TypeAlias = Union[bool, float, int, list[bool], list[int]]


def add_keys(writer: GGUFWriter, architecture: str, keys: Mapping[str, Value]) -> None:
    """Add metadata of an architecture; a name that begins with "/" is of none."""
    for key, value in keys.items():
        name = key[1:] if key.startswith("/") else f"{architecture}.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, list):
            writer.add_array(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        else:
            writer.add_uint32(name, value)


def finish(writer: GGUFWriter) -> None:
    """Write metadata and tensors, and close the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
