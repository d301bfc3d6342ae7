"""Inputs of measurements: generated models and a text, made once, and programs."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

from gguf import GGMLQuantizationType as Type

from pyquant.data.generated import GeneratedModel
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode

ROOT = Path(__file__).resolve().parent.parent
ORACLE = Path(os.environ.get("PYQUANT_ORACLE", ROOT / "build/oracle/bin"))
PYQUANT = str(Path(sys.executable).with_name("pyquant"))

# Matrices like those of a model of a billion weights.
WIDE = {"n_embd": 2048, "n_ff": 5632, "n_head": 32, "n_head_kv": 4, "type": Type.F16}
LAYERS = GeneratedModel(**WIDE, n_layer=7, n_vocab=512, tied=True)  # 0.31 G, nearly all of them in layers
LARGE = GeneratedModel(**WIDE, n_layer=11, n_vocab=8192)  # 0.52 G weights
MEMORY_BOUND = GeneratedModel(**WIDE, n_layer=18, n_vocab=8192)  # 0.83 G: no cache holds 4 bits of each
BILLION = GeneratedModel(**WIDE, n_layer=22, n_vocab=32000)  # 1.1 G weights
SMALL = GeneratedModel(n_embd=512, n_ff=1536, n_layer=8, n_head=8, n_head_kv=4, n_vocab=8192, type=Type.F16)


def model(arguments: argparse.Namespace, generated: GeneratedModel, name: str) -> Path:
    """Path of the model's file in the benchmarks' folder; the file is made where it is missing."""
    settings = hashlib.sha256(repr(generated).encode()).hexdigest()  # those of another model: another file
    path = arguments.folder / f"{settings[:8]}-{name}"
    if not path.exists():
        generated.write(path)
    return path


@cache
def quantized(path: Path, source: Path, **settings: Any) -> Path:
    """Path of a model quantized by a mode's settings; the file is made once in a run."""
    quantize_model(source, path, make_mode(settings), force=True)
    return path


def layers(arguments: argparse.Namespace) -> Path:
    """Path of the file of LAYERS."""
    return model(arguments, LAYERS, "wide-f16.gguf")


def evaluation_text(arguments: argparse.Namespace) -> Path:
    path = arguments.folder / "text.txt"
    path.write_text("the meaning of a text matters little where only its length is measured\n" * 1000)
    return path
