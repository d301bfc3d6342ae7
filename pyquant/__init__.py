"""pyquant: quantization research on llama.cpp and GGML.

    import pyquant

    mode = pyquant.make_mode({"mode": "q8_table", "table": "balanced"})
    report = pyquant.quantize("model-f16.gguf", "model-table.gguf", mode)
    codes = pyquant.histogram("model-table.gguf")
    result = pyquant.perplexity("model-table.gguf", pyquant.read_text("wiki.test.raw"))

Everything here prints nothing and raises subclasses of `PyquantError`. Names are loaded when they
are first used, so that importing pyquant costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "ConfigError": "errors",
    "ModelFileError": "errors",
    "OutputError": "errors",
    "PyquantError": "errors",
    "RuntimeLibraryError": "errors",
    "TextError": "errors",
    "ModelFile": "model_file",
    "make_mode": "config",
    "read_config": "config",
    "quantize": "quantize",
    "histogram": "histogram",
    "measure_error": "error_map",
    "Table": "tables",
    "balanced": "tables",
    "basic": "tables",
    "read_table": "tables",
    "perplexity": "perplexity",
    "read_text": "perplexity",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'pyquant' has no attribute {name!r}")
    return getattr(importlib.import_module(f"pyquant.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
