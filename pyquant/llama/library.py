"""The library that pyquant was built with, through llama_cpp: the only module that imports llama_cpp."""

from __future__ import annotations

import atexit
import importlib
import importlib.metadata
import os
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from pyquant import _core
from pyquant.errors import NotEnoughMemory, RuntimeLibraryError
from pyquant.llama import log
from pyquant.machine.memory import lacks_memory, require_memory

IMPORT = 24 << 20  # bytes that llama_cpp and what it imports take: 13 MB, measured, and some room


@cache
def bindings() -> ModuleType:
    """Return llama_cpp's functions and structures, which call the patched library.

    Raises NotEnoughMemory: there is no room for the library. RuntimeLibraryError: llama_cpp is missing, of
    another version, or already at work with another library.
    """
    build = _core.build_info()
    library = Path(build["library_folder"]) / "libllama.so"
    wanted = build["llama_cpp_python"]
    try:
        version = importlib.metadata.version("llama-cpp-python")
    except importlib.metadata.PackageNotFoundError:
        raise RuntimeLibraryError(f"llama-cpp-python is not installed; pyquant needs {wanted}") from None
    if version != wanted:
        raise RuntimeLibraryError(
            f"llama-cpp-python {version} is installed; pyquant was built for {wanted}, whose structures "
            f"have another layout: pip install llama-cpp-python=={wanted}"
        )
    llama = sys.modules.get("llama_cpp.llama_cpp") or _import_on(library.parent)
    if not os.path.samefile(llama._lib._name, library):
        raise RuntimeLibraryError(
            f"llama_cpp already uses {llama._lib._name}, not pyquant's {library}; call "
            f"pyquant.llama.library.bindings() before anything imports llama_cpp, or use another process"
        )
    llama.llama_log_set(log.callback(llama), None)
    llama.llama_backend_init()
    return llama


def _import_on(folder: Path) -> ModuleType:
    # llama_cpp reads the variable once, when it is imported; processes that we start shall not.
    require_memory(IMPORT, "llama.cpp")  # Python's own failures in the midst of an import have no words
    before = os.environ.get("LLAMA_CPP_LIB_PATH")
    os.environ["LLAMA_CPP_LIB_PATH"] = str(folder)
    try:
        llama = importlib.import_module("llama_cpp.llama_cpp")
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        if lacks_memory(error):
            raise NotEnoughMemory(f"not enough memory for llama.cpp: {error}") from None
        raise RuntimeLibraryError(f"llama_cpp cannot use pyquant's library in {folder}: {error}") from None
    finally:
        if before is None:
            del os.environ["LLAMA_CPP_LIB_PATH"]
        else:
            os.environ["LLAMA_CPP_LIB_PATH"] = before
    utils = sys.modules["llama_cpp._utils"]  # it opens /dev/null twice and never closes it
    for file in (utils.outnull_file, utils.errnull_file):
        atexit.register(file.close)
    return llama
