"""What is measured on: generated models and a text, made once; and with which programs."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from gguf import GGMLQuantizationType as Type

from tests.models import Model

ROOT = Path(__file__).resolve().parent.parent
ORACLE = Path(os.environ.get("PYQUANT_ORACLE", ROOT / "build/oracle/bin"))
PYQUANT = str(Path(sys.executable).with_name("pyquant"))

# 0.55 G weights, in matrices like those of a 1 B model.
LARGE = Model(n_embd=2048, n_ff=5632, n_layer=11, n_head=32, n_head_kv=4, n_vocab=8192, type=Type.F16)
SMALL = Model(n_embd=512, n_ff=1536, n_layer=8, n_head=8, n_head_kv=4, n_vocab=8192, type=Type.F16)
# 0.83 G weights: too large for any cache, even with 4 bits each.
MEMORY_BOUND = Model(n_embd=2048, n_ff=5632, n_layer=18, n_head=32, n_head_kv=4, n_vocab=8192, type=Type.F16)
# 1.1 G weights.
BILLION = Model(n_embd=2048, n_ff=5632, n_layer=22, n_head=32, n_head_kv=4, n_vocab=32000, type=Type.F16)


def model(arguments: argparse.Namespace, kind: Model, name: str) -> Path:
    """Its file in the benchmarks' folder, made where it is missing."""
    path = arguments.folder / name
    if not path.exists():
        kind.write(path)
    return path


def evaluation_text(arguments: argparse.Namespace) -> Path:
    path = arguments.folder / "text.txt"
    path.write_text("the meaning of a text matters little where only its length is measured\n" * 1000)
    return path
