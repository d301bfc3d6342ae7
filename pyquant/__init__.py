"""pyquant: quantization research on llama.cpp and GGML.

    import pyquant

    mode = pyquant.make_mode({"mode": "q8_table", "table": "balanced"})
    pyquant.quantize_model("model-f16.gguf", "model-table.gguf", mode)
    histogram = pyquant.count_codes("model-table.gguf")
    perplexity = pyquant.measure_perplexity("model-table.gguf", "wiki.test.raw")
    comparison = pyquant.compare_models("model-f16.gguf", ["model-table.gguf"], "wiki.test.raw")

Functions print nothing and raise subclasses of `PyquantError`. Results have attributes, and `to_json` for
files and other programs. A name is loaded when it is first used, so `import pyquant` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

# Every public name, and the module that defines it.
_HOME = {
    "ConfigError": "errors",
    "ModelFileError": "errors",
    "OutputError": "errors",
    "PyquantError": "errors",
    "RuntimeLibraryError": "errors",
    "StudyError": "errors",
    "TextError": "errors",
    "ModelFile": "models.model_file",
    "model_info": "models.info",
    "make_mode": "schemes.settings",
    "read_config": "schemes.settings",
    "load_modes": "schemes.outside",
    "quantize": "fit.method.quantize",
    "quantize_model": "rounding.quantize_model",
    "quantize_to_pqz": "rounding.to_pqz",
    "quantize_patched": "rounding.inside_llama",
    "dequantize_model": "rounding.dequantize",
    "equalize_model": "rounding.equalize.equalize_model",
    "unpack_q4_t": "models.unpack_q4_t",
    "pack_model": "models.pqz.pack",
    "unpack_model": "models.pqz.unpack",
    "learn_tables": "fit.learn_tables",
    "measure_sensitivity": "fit.measure_sensitivity",
    "StepSearch": "fit.step_search",
    "mix_model": "fit.mix_model",
    "WantedSize": "fit.mixtures",
    "Evaluation": "fit.evaluation",
    "Baseline": "evaluate.baseline",
    "Target": "fit.target",
    "count_codes": "inspect.histogram",
    "Table": "schemes.fold_table",
    "TableSet": "schemes.table_set",
    "balanced": "schemes.fold_table",
    "basic": "schemes.fold_table",
    "read_table": "schemes.fold_table",
    "read_table_set": "schemes.table_set",
    "Calibration": "calibration",
    "calibrate_model": "calibration.calibrate",
    "measure_perplexity": "evaluate.perplexity",
    "compare_models": "evaluate.compare",
    "compare_texts": "evaluate.compare",
    "NamedText": "files.text",
    "read_chat": "evaluate.chat",
    "measure_accuracy": "evaluate.accuracy",
    "measure_error": "inspect.error_map",
    "measure_speed": "evaluate.speed",
    "read_study": "study.config",
    "run_study": "study.run",
    "read_text": "files.text",
}

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("pyquant")
    if name not in _HOME:
        raise AttributeError(f"module 'pyquant' has no attribute {name!r}")
    return getattr(importlib.import_module(f"pyquant.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
