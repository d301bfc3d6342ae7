"""Modes from outside of this package: a file, or a package that is installed (docs/schemes.md)."""

from __future__ import annotations

import copyreg
import hashlib
import importlib.machinery
import importlib.util
import os
import sys
import traceback
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from pyquant.errors import ConfigError
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
    path = Path(path)
    if not os.path.isfile(path):
        raise ConfigError(f"{path}: no such file; a scheme is a Python file that defines a Mode")
    resolved = path.resolve()
    if resolved in _loaded:
        return _loaded[resolved]
    name = f"pyquant_scheme_{hashlib.sha256(str(resolved).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, resolved, loader=_loader(name, resolved))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = dict(Mode.registry)
    sys.modules[name] = module  # pydantic looks names up there
    try:
        spec.loader.exec_module(module)
        modes = [mode for mode in Mode.registry.values() if mode.__module__ == name]
        if not modes:
            raise ConfigError("defines no mode: a subclass of pyquant.schemes.Mode with a name of its own")
    except BaseException as error:
        Mode.registry.clear()
        Mode.registry.update(before)
        del sys.modules[name]
        if isinstance(error, ConfigError):
            raise ConfigError(f"{path}: {error}") from None
        if isinstance(error, (Exception, SystemExit)):
            raise ConfigError(_explain(path, resolved, error)) from None
        raise
    for mode in modes:
        mode.source = resolved
        copyreg.pickle(mode, _reduce)
    _loaded[resolved] = modes
    return modes


def load_installed() -> None:
    """Imports the modules that installed packages name as entry points, once.

    Raises
    ------
    ConfigError
        A module cannot be imported, or defines a mode whose name is taken; the package is named.
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


def _loader(name: str, path: Path) -> importlib.machinery.SourceFileLoader:
    # Whatever the file's name ends in.
    return importlib.machinery.SourceFileLoader(name, str(path))


def _explain(path: Path, resolved: Path, error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        line: int | None = error.lineno
    else:
        frames = traceback.extract_tb(error.__traceback__)
        line = next((frame.lineno for frame in reversed(frames) if frame.filename == str(resolved)), None)
    where = f"{path}, line {line}" if line else str(path)
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{where}: {type(error).__name__}: {message}"
