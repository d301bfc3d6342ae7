"""Read texts to evaluate models on."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyquant.errors import ConfigError, TextError, said_by_system


@dataclass(frozen=True)
class Text:
    """A UTF-8 file.

    data: its bytes, less one newline at the end, as llama-perplexity takes it.
    marked: control tokens that are written out in it count as such, as in dialogues.
    """

    path: Path
    data: bytes
    marked: bool = False

    @cached_property
    def sha256(self) -> str:
        """The hash of `data`: two files that give the same results have the same hash."""
        return hashlib.sha256(self.data + b"\0marked" * self.marked).hexdigest()


@dataclass(frozen=True)
class NamedText:
    """A text, and what results call it. kind: text, or bundled with pyquant."""

    name: str
    text: Text
    kind: str = "text"


def read_text(path: str | os.PathLike[str] | Text) -> Text:
    """Read a text by its path, or hand one on that was read.

    Raises
    ------
    TextError
        The file is missing, empty, or not UTF-8. The message names the byte.
    """
    if isinstance(path, Text):
        return path
    path = Path(path)
    return make_text(path, text_bytes(path))


def text_bytes(path: Path) -> bytes:
    """Read a file that may be a pipe. Raises TextError: it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise TextError(said_by_system(error, path)) from None
    except ValueError as error:  # a zero byte in its name
        raise TextError(f"{str(path)!r}: {error}") from None


AnyText = Text | str | os.PathLike[str]


def read_texts(texts: AnyText | Sequence[AnyText]) -> list[Text]:
    """Read one text or several. Raises ConfigError: there is none. TextError: what `read_text` raises."""
    several = [texts] if isinstance(texts, Text | str | os.PathLike) else texts
    if not several:
        raise ConfigError("text: at least one is needed")
    return [read_text(text) for text in several]


def make_text(path: Path, data: bytes) -> Text:
    """Make a text of bytes that came from `path`. Raises TextError."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise TextError(
            f"{path}: not UTF-8: byte {error.start} is 0x{data[error.start]:02x}; "
            f"`iconv -t UTF-8` converts other encodings"
        ) from None
    data = data.removesuffix(b"\n")
    if not data:
        raise TextError(f"{path}: empty")
    return Text(path, data)
