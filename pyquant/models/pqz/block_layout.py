"""Say what the bytes of a block mean, so that bytes of one meaning are coded together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyquant import _core

Content = Literal["codes", "numbers", "text"]


@dataclass(frozen=True)
class Field:
    """The next `length` bytes of a block, which are a stream of their own.

    bits: length of one symbol in them, 1..8.
    """

    content: Content
    length: int
    bits: int = 8


Layout = tuple[Field, ...]

BYTES: Layout = (Field("numbers", 1),)
TEXT: Layout = (Field("text", 1),)  # metadata and vocabulary


def block_bytes(layout: Layout) -> int:
    """Count the bytes of a block."""
    return sum(field.length for field in layout)


def kernel(layout: Layout) -> _core.Layout:
    """Make the layout that C++ takes. Raises ValueError if there can be none like it."""
    return _core.Layout([(field.length, getattr(_core.Content, field.content)) for field in layout])
