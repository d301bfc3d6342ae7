"""Write metadata into a GGUF header."""

from __future__ import annotations

from pyquant import _core

# Keys that say how the source is laid out. llama-quantize keeps the alignment, lays out its file by
# the default nevertheless, and then no reader finds the tensors.
LAYOUT_KEYS = ("general.alignment", "split.no", "split.count", "split.tensors.count")
EQUALIZED_FROM = "pyquant.equalized_from"  # the hash of the model whose channels had other scales


def set_metadata(header: _core.Gguf, entries: dict[str, str | int]) -> None:
    """Set metadata, texts and integers, in the order of `entries`."""
    for key, value in entries.items():
        header.set_text(key, value) if isinstance(value, str) else header.set_u32(key, value)
