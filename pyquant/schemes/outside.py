"""Modes from outside of this package: a file, or a package that is installed (docs/schemes.md)."""

from __future__ import annotations

import copyreg
import os
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from pyquant.errors import ConfigError
from pyquant.files.python_file import find_python_file, run_python_file
from pyquant.schemes.mode import Mode

ENTRY_POINTS = "pyquant.schemes"

_loaded: dict[Path, list[type[Mode]]] = {}
_installed_are_loaded = False


def load_modes(path: str | os.PathLike[str]) -> list[type[Mode]]:
    """Runs a Python file and returns the modes that it defines, which `make_mode` then knows.

    A file that has been loaded is not run again.

    Raises
    ------
    ConfigError
        The file cannot be read or run (its line is named), defines no mode, or a mode whose name is taken.
    """
    resolved = find_python_file(path, "a scheme is a Python file that defines a Mode")
    if resolved in _loaded:
        return _loaded[resolved]
    before = dict(Mode.registry)
    try:
        module = run_python_file(path)
        modes = [mode for mode in Mode.registry.values() if mode.__module__ == module.__name__]
        if not modes:
            raise ConfigError(
                f"{path}: defines no mode: a subclass of pyquant.schemes.Mode with a name of its own"
            )
    except BaseException:
        Mode.registry.clear()
        Mode.registry.update(before)
        raise
    for mode in modes:
        mode.source = resolved
        copyreg.pickle(mode, _reduce)
    _loaded[resolved] = modes
    return modes


def load_installed() -> None:
    """Imports the modules that installed packages name as entry points, once.

    Raises ConfigError: a module cannot be imported, or defines a mode whose name is taken; the package is
    named.
    """
    global _installed_are_loaded
    if _installed_are_loaded:
        return
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            entry.load()
        except Exception as error:
            package = entry.dist.name if entry.dist else entry.name
            raise ConfigError(
                f"the schemes of the installed package {package} ({entry.value}) cannot be loaded: "
                f"{type(error).__name__}: {error}"
            ) from None
    _installed_are_loaded = True


def _reduce(mode: Mode) -> tuple[Any, ...]:
    # Another process, such as a study's worker, has to load the file first.
    return _make_again, (mode.source, mode.name, mode.model_dump(exclude_unset=True))


def _make_again(source: Path, name: str, settings: dict[str, Any]) -> Mode:
    load_modes(source)
    return Mode.registry[name].model_validate(settings)
