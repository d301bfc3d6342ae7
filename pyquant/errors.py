"""Define the errors that pyquant raises, and remarks. A message says what is wrong, where, and what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from typing import TypeAlias

Tell: TypeAlias = Callable[[str], None]  # told a remark: what a user may want to know, and no error


class PyquantError(Exception):
    """Base of all errors of pyquant. Its message is complete without a traceback."""


class ModelFileError(PyquantError):
    """A model, importance matrix or calibration that cannot be read, or weights that cannot be used."""


class UnreadableFile(ModelFileError):
    """A file that is damaged, or that the system cannot read, whatever is wanted of it."""


class ConfigError(PyquantError):
    """A mode, parameter, table or configuration key that does not fit."""


class OutputError(PyquantError):
    """A result that cannot be written: its file exists, its folder does not, or the disk is full."""


class NotEnoughMemory(PyquantError, MemoryError):
    """Work that takes more memory than this process may use."""


class RuntimeLibraryError(PyquantError):
    """llama_cpp is missing, or its library is not the one that pyquant was built with."""


class TextError(PyquantError):
    """A text that cannot be evaluated: it is missing, not UTF-8, or too short."""


class GrammarError(PyquantError):
    """A grammar that does not compile, or a text that has come to where nothing may follow."""


class StudyError(PyquantError):
    """A study that cannot go on, or a results folder that cannot be used."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Give the known word that somebody may have meant; None where none is like it."""
    import difflib  # takes a while to load, and only a mistake needs it

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """End a message with the known word that somebody may have meant; empty where none is like it."""
    close = nearest(word, known)
    return f"; did you mean {close!r}?" if close else ""


def said_by_system(error: OSError, where: str | os.PathLike[str]) -> str:
    """Say what the system refused, and which file; `where` is named if the error names none."""
    if error.errno in (errno.EMFILE, errno.ENFILE):  # of whichever file: it is not to blame
        return f"{os.fsdecode(where)}: {error.strerror}; `ulimit -n 1024` allows more"
    return f"{os.fsdecode(error.filename or where)}: {error.strerror or error}"
