"""A GGUF written to its end."""

from __future__ import annotations

from gguf import GGUFWriter


def finish(writer: GGUFWriter) -> None:
    """Write metadata and tensors, and close the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
