"""A wheel's variants beside this build, which is compiled for this very CPU: python -m benchmarks wheel."""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

from benchmarks.inputs import PYQUANT, ROOT, SMALL, evaluation_text, model, quantized
from benchmarks.timing import Runs, interleave, row
from pyquant import _cpu


def wheel(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Time quantizing, comparing, calibrating, reading and writing tokens with each variant, in turns."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    wheels = list((ROOT / "build/dist").glob(f"pyquant-*-{python}-*_{platform.machine()}.whl"))
    if not wheels:
        print("wheel: `make wheel` has made none for this Python: left out", file=sys.stderr)
        return []
    installed = _install(wheels[-1], arguments.folder / "wheel")
    programs = {"this build": [PYQUANT]}
    programs |= {f"wheel, {name}": ["env", f"PYQUANT_CPU={name}", installed] for name in _cpu.variants()}
    results = []
    for what, command in _commands(arguments).items():
        runs = [Runs(f"{what}, {name}", [*program, *command]) for name, program in programs.items()]
        interleave(runs, arguments.rounds)
        results += [_row(runs[0], None), *(_row(own, runs[0]) for own in runs[1:])]
    return results


def _row(runs: Runs, peer: Runs | None) -> dict[str, Any]:
    """Compare the least CPU time of each: what else runs on the machine makes times longer, never shorter."""
    result = row(runs, None, 0) | {"seconds": min(runs.cpu_seconds)}
    if peer is not None:
        each = [other / own for other, own in zip(peer.cpu_seconds, runs.cpu_seconds)]
        result |= {
            "peer": f"{peer.name} (CPU time)",
            "times_as_fast": min(peer.cpu_seconds) / min(runs.cpu_seconds),
            "low": min(each),
            "high": max(each),
        }
    return result


def _install(path: Path, folder: Path) -> str:
    venv.create(folder, with_pip=True, clear=True)
    subprocess.run([folder / "bin/python", "-m", "pip", "install", "-qq", path], check=True)
    return str(folder / "bin/pyquant")


def _commands(arguments: argparse.Namespace) -> dict[str, list[str]]:
    source = model(arguments, SMALL, "small-f16.gguf")
    packed = quantized(arguments.folder / "small-q4_k.gguf", source, mode="ggml:Q4_K")
    threads = ["--threads", str(arguments.threads)]
    text = ["--text", str(evaluation_text(arguments)), "--chunks", "8", *threads]
    out, stats = (str(arguments.folder / name) for name in ("out.gguf", "stats.gguf"))
    return {
        "quantize": ["quantize", str(source), out, "Q4_K_M", "--force", *threads],
        "compare": ["compare", str(source), str(packed), *text],
        "calibrate": ["calibrate", str(source), "-o", stats, "--force", "--random", "0", *text],
        "prompt": ["perplexity", str(packed), *text],
        "generate": ["generate", str(packed), "-p", "the", "--max-tokens", "128", "--seed", "1", *threads],
    }
