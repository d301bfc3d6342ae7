"""llama.cpp's functions and structures: those of the extension, by llama-cpp-python's ctypes declarations."""

from __future__ import annotations

import importlib
from functools import cache
from types import ModuleType

from pyquant.errors import NotEnoughMemory, RuntimeLibraryError
from pyquant.llama import log
from pyquant.machine.memory import lacks_memory, require_memory

IMPORT = 24 << 20  # bytes that the declarations and what they import take: 13 MB, measured, and some room


@cache
def bindings() -> ModuleType:
    """Return llama.cpp's functions and structures.

    They are pyquant's own, which `cmake/llama.cmake` makes: an installed llama-cpp-python is neither needed
    nor touched.

    Raises NotEnoughMemory: there is no room for them. RuntimeLibraryError: they do not fit the extension.
    """
    require_memory(IMPORT, "llama.cpp")  # Python's own failures in the midst of an import have no words
    try:
        llama = importlib.import_module("pyquant.llama._llama_cpp")
    except (ImportError, OSError, AttributeError) as error:
        if lacks_memory(error):
            raise NotEnoughMemory(f"not enough memory for llama.cpp: {error}") from None
        raise RuntimeLibraryError(
            f"pyquant's llama.cpp does not load: {error}; install pyquant again"
        ) from None
    llama.llama_log_set(log.callback(llama), None)
    llama.llama_backend_init()
    return llama
