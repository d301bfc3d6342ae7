"""Run a Python file that a user names: a scheme or a task of one's own. No other place runs files."""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from pyquant.errors import ConfigError, PyquantError


def find_python_file(path: str | os.PathLike[str], what: str) -> Path:
    """Return a file's absolute path, through links.

    what: what it should be, for the message where there is none: "a scheme is a Python file that ...".
    Raises ConfigError: there is no such file, or no file can have the name.
    """
    if not os.path.isfile(path):
        raise ConfigError(f"{path}: no such file; {what}")
    return Path(path).resolve()


def run_python_file(path: str | os.PathLike[str]) -> ModuleType:
    """Run a Python file, whatever its name ends in, as a module that others of this process can look up.

    path: a file that is there.
    Returns: its name depends on the file's path alone.
    Raises ConfigError: the file cannot be read or run; its line is named. Errors as of `errors_of`.
    """
    path = Path(path)
    resolved = path.resolve()
    name = f"pyquant_file_{hashlib.sha256(str(resolved).encode()).hexdigest()[:16]}"
    loader = importlib.machinery.SourceFileLoader(name, str(resolved))
    spec = importlib.util.spec_from_file_location(name, resolved, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pydantic and pickle look names up there
    try:
        with errors_of(path):
            loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Turn what a file's code raises into a ConfigError that names the file, and the line of it.

    Other errors of pyquant that the code meets, such as of a damaged model, name their own file.
    """
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    except (PyquantError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(_explain(path, path.resolve(), error)) from None


def _explain(path: Path, resolved: Path, error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        line: int | None = error.lineno
    else:
        frames = traceback.extract_tb(error.__traceback__)
        line = next((frame.lineno for frame in reversed(frames) if frame.filename == str(resolved)), None)
    where = f"{path}, line {line}" if line else str(path)
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{where}: {type(error).__name__}: {message}"
