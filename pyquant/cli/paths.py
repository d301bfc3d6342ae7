"""Files that commands are given: every option that names one is parsed by a function of this file.

Inputs are protected as they are parsed, a shard with the others of its model: then no output of the command
can replace one, whichever names it goes by. A test goes over all options of all commands.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path

import typer

from pyquant.errors import TextError
from pyquant.files.text import NamedText, Text, make_text, read_text

SHOWS_RESULTS = ("rich.console", "rich.table")
_outputs: list[Path] = []  # of the command at work
_inputs: list[str] = []  # likewise, which can be read once: standard input


def source(name: str | Path) -> Path:
    """Reads the name of a file that is read."""
    from pyquant.files.output_file import protect
    from pyquant.models.shard_name import named_shards

    if str(name) == "-":
        raise typer.BadParameter("'-': only a text can come from standard input")
    for path in {Path(name), *named_shards(Path(name))}:
        protect(path)
    return Path(name)


def source_or_word(name: str) -> str:
    """Reads a word that stands for something built in, or the name of a file that is read."""
    source(name)
    return name


@dataclass(frozen=True)
class NamedPath:
    """A file, and what results call it."""

    name: str
    path: Path


def named_source(pair: str) -> NamedPath:
    """Reads NAME=FILE, where the file is read."""
    name, equals, file = pair.partition("=")
    if not (name and equals and file):
        raise typer.BadParameter(f"expected NAME=FILE, got {pair!r}")
    return NamedPath(name, source(file))


def maybe_named_source(name: str) -> NamedPath:
    """Reads FILE or NAME=FILE, where the file is read; a file without a name is called as it is."""
    called, path = _maybe_named(name)
    return NamedPath(called, source(path))


def named_text(name: str) -> NamedText:
    """Reads a text by FILE or NAME=FILE, as `maybe_named_source`. Raises TextError."""
    called, path = _maybe_named(name)
    return NamedText(called, text(path))


def _maybe_named(name: str) -> tuple[str, str]:
    called, equals, file = name.partition("=")
    if equals and not Path(name).exists():
        if not (called and file):
            raise typer.BadParameter(f"expected NAME=FILE, got {name!r}")
        return called, file
    return Path(name).name, name


def text(name: str) -> Text:
    """Reads a text: a file, or standard input for `-`. Raises TextError."""
    if name == "-":
        if name in _inputs:
            raise typer.BadParameter("'-': standard input is named twice, and can be read once")
        _inputs.append(name)
        if sys.stdin is None:  # a closed one
            raise TextError("-: standard input is closed; give a file, or a pipe")
        return make_text(Path(name), sys.stdin.buffer.read())
    return read_text(source(name))


def output(name: str | Path) -> Path:
    """Reads the name of a file that is written."""
    if str(name) == "-":
        raise typer.BadParameter("'-': results go to a file, not to standard output; name one")
    path = Path(name)
    if path.resolve() in _outputs:
        raise typer.BadParameter(f"{path}: is named for another output too")
    _outputs.append(path.resolve())
    for library in SHOWS_RESULTS:  # a lack of memory is to be met before the output is there, not after it
        importlib.import_module(library)
    return path


def forget_names() -> None:
    """Forgets what the command before named: a process may run several."""
    _outputs.clear()
    _inputs.clear()


def kept(name: str | Path) -> Path:
    """Reads the name of a file that is read where it is there, and else written."""
    return source(name) if Path(name).is_file() else output(name)


def folder(name: str | Path) -> Path:
    """Reads the name of a folder in which files have names of our own."""
    return Path(name)


PARSERS = (
    source, source_or_word, named_source, maybe_named_source, named_text, text, output, kept, folder,
)  # fmt: skip
