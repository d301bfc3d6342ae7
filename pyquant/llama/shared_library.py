"""What `_llama_cpp`, a private copy of llama-cpp-python's ctypes declarations, calls to reach a library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyquant import _core

byref = ctypes.byref


def load_shared_library(name: str, folder: Path) -> ctypes.CDLL:
    """Open the extension, which holds llama.cpp: whatever else of that name is installed."""
    return ctypes.CDLL(_core.__file__)


def ctypes_function_for_shared_library(library: ctypes.CDLL) -> Callable[..., Any]:
    """Return a decorator that puts a function of the library into a declaration's place."""

    def declare(name: str, argtypes: list[Any], restype: Any, enabled: bool = True) -> Callable[..., Any]:
        def decorate(declaration: Callable[..., Any]) -> Any:
            if not enabled:
                return declaration
            function = getattr(library, name)
            function.argtypes, function.restype = argtypes, restype
            return function

        return decorate

    return declare
