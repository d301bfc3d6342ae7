"""The errors that pyquant raises: what is wrong, where, and what to do about it."""

from __future__ import annotations


class PyquantError(Exception):
    """Base of all of them; a message is one sentence or two, without a traceback's help."""


class ModelFileError(PyquantError):
    """A GGUF that cannot be read, or weights in it that cannot be used."""


class ConfigError(PyquantError):
    """A mode, parameter, table or configuration key that does not fit."""


class OutputError(PyquantError):
    """A result that cannot be written: it exists, its folder does not, or there is no room."""


class RuntimeLibraryError(PyquantError):
    """llama_cpp or its library is not the one that pyquant was built with."""


class TextError(PyquantError):
    """A text that cannot be evaluated: not UTF-8, or too short."""


class StudyError(PyquantError):
    """A study that cannot go on, or a results folder that cannot be used."""
