"""Run a reader of files on what Atheris thinks of: it reads a file, or refuses it by an error of ours."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import atheris

from pyquant.errors import PyquantError


def watch(read: Callable[[Path], object], make: Callable[[bytes], bytes], code: Sequence[ModuleType]) -> None:
    """Fuzz until the options of the command line say that it is enough.

    Parameters
    ----------
    read
        Reads all of a file.
    make
        Makes the file's bytes of an input, with checksums that are right.
    code
        Modules whose coverage guides what is thought of next.
    """
    for module in code:
        _instrument(module)
    file = os.memfd_create("input")
    path = Path(f"/proc/self/fd/{file}")

    def test(data: bytes) -> None:
        content = make(data)
        os.ftruncate(file, 0)
        os.pwrite(file, content, 0)
        with contextlib.suppress(PyquantError):
            read(path)

    warnings.simplefilter("error")
    atheris.Setup(sys.argv, test)
    atheris.Fuzz()


def _instrument(module: ModuleType) -> None:
    # Atheris instruments what is imported, but not by the finder of packages that are installed to be edited.
    classes = [c for _, c in inspect.getmembers(module, inspect.isclass) if c.__module__ == module.__name__]
    for owner in (module, *classes):
        for _, function in inspect.getmembers(owner, inspect.isfunction):
            if function.__module__ == module.__name__:
                atheris.instrument_func(function)
