"""pyquant: quantization research on llama.cpp and GGML.

    import pyquant

    mode = pyquant.make_mode({"mode": "q8_table", "table": "balanced"})
    pyquant.quantize_model("model-f16.gguf", "model-table.gguf", mode)
    codes = pyquant.count_codes("model-table.gguf")
    result = pyquant.measure_perplexity("model-table.gguf", "wiki.test.raw")
    apart = pyquant.compare_models("model-f16.gguf", ["model-table.gguf"], "wiki.test.raw")

Everything here prints nothing and raises subclasses of `PyquantError`; what it returns has `to_json`.
Names are loaded when they are first used, so that importing pyquant costs next to nothing.
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
    "StudyError": "errors",
    "TextError": "errors",
    "ModelFile": "model_file",
    "model_info": "info",
    "make_mode": "config",
    "read_config": "config",
    "quantize_model": "quantize",
    "quantize_packed": "quantize_packed",
    "quantize_patched": "llama_quantize",
    "unpack_tables": "unpack",
    "pack_model": "container.pack",
    "unpack_model": "container.unpack",
    "learn_tables": "learn",
    "measure_sensitivity": "sensitivity",
    "StepSearch": "target",
    "count_codes": "histogram",
    "Table": "tables",
    "balanced": "tables",
    "basic": "tables",
    "read_table": "tables",
    "Calibration": "calibration",
    "calibrate_model": "calibration.run",
    "measure_perplexity": "perplexity",
    "compare_models": "compare",
    "measure_error": "error_map",
    "measure_speed": "speed",
    "read_study": "study.config",
    "run_study": "study.run",
    "read_text": "text",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'pyquant' has no attribute {name!r}")
    return getattr(importlib.import_module(f"pyquant.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
