"""Quantization inside llama.cpp gives the file that quantize_model gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyquant.rounding.inside_llama import quantize_patched
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode


def assert_same_file(model: Path, settings: dict[str, Any], folder: Path) -> None:
    mode = make_mode(settings)
    quantize_model(model, folder / "pyquant.gguf", mode)
    quantize_patched(model, folder / "llama.gguf", mode)
    assert (folder / "llama.gguf").read_bytes() == (folder / "pyquant.gguf").read_bytes()
    assert not list(folder.glob(".*"))
