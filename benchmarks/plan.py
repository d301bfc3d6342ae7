"""What `quantize --method` says before its work beside what came: time and memory, and passes alone.

Models of the widths that people run, with few layers: all layers cost the same. `--model FILE` takes another.
Memory is what the process had for itself at the most: the mapped model is not in it.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from gguf import GGMLQuantizationType as Type

from benchmarks.inputs import PYQUANT, evaluation_text, model
from benchmarks.timing import Runs, row
from pyquant.data.generated import GeneratedModel

MODELS = {
    "8b-2-layers-f16.gguf": GeneratedModel(
        n_embd=4096, n_ff=14336, n_layer=2, n_head=32, n_head_kv=8, n_vocab=128_256, n_ctx=512,
        type=Type.F16,
    ),
    "30b-a3b-2-layers-f16.gguf": GeneratedModel(
        n_embd=2048, n_ff=768, n_layer=2, n_head=32, n_head_kv=4, n_vocab=32_000, n_expert=128, n_used=8,
        n_ctx=512, type=Type.F16,
    ),
}  # fmt: skip
# Chunks of a calibration, enough to propagate errors into rows of 4096, and of two passes alone.
CHUNKS, SHORT, LONG = 64, 2, 10
WHOLE = {
    "8b": replace(MODELS["8b-2-layers-f16.gguf"], n_layer=32),
    "30b-a3b": replace(MODELS["30b-a3b-2-layers-f16.gguf"], n_layer=48, n_vocab=151_936),
}


def plan(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Each method once on each model."""
    text = evaluation_text(arguments)
    text.write_text(text.read_text() * 4)
    named = [model(arguments, generated, name) for name, generated in MODELS.items()]
    whole = {} if arguments.model else WHOLE
    results = [_planned(arguments, generated, name) for name, generated in whole.items()]
    for source in [arguments.model] if arguments.model else named:
        given = ["--text", str(text), "--threads", str(arguments.threads)]
        passes = [
            Runs("", [PYQUANT, "perplexity", str(source), *given, "--chunks", str(n)]) for n in (SHORT, LONG)
        ]
        for runs in passes:
            runs.run()
        per_chunk = (passes[1].median - passes[0].median) / (LONG - SHORT)
        for method in ("gptq", "best"):
            results.append(_method(source, method, given, per_chunk, arguments.folder / "plan.gguf"))
    return results


def _planned(arguments: argparse.Namespace, generated: GeneratedModel, name: str) -> dict[str, Any]:
    """What is said of `best` by default on a model with all its layers; nothing is done."""
    source = generated.write_hollow(arguments.folder / f"{name}-hollow-f16.gguf")
    given = ["--threads", str(arguments.threads), "--dry-run"]
    result = _said_and_came(f"{name} best, planned", source, arguments.folder / "plan.gguf", "best", given)
    source.unlink()
    return result


def _method(source: Path, method: str, given: list[str], per_chunk: float, output: Path) -> dict[str, Any]:
    given = [*given, "--calibration-chunks", str(CHUNKS)]
    result = _said_and_came(f"{source.stem} {method}", source, output, method, given)
    output.unlink()
    return result | {"of_passes": result["seconds"] / (CHUNKS * per_chunk)}


def _said_and_came(name: str, source: Path, output: Path, method: str, given: list[str]) -> dict[str, Any]:
    """Run a method once: its time and memory, and what its plan said of these and of disk."""
    wanted = ["Q4_K_M", "--method", method, "--json", *given]
    runs = Runs(name, [PYQUANT, "quantize", str(source), str(output), *wanted], clean=[str(output)])
    runs.run()
    report, _ = json.JSONDecoder().raw_decode(runs.said[runs.said.index("\n{") + 1 :])  # more may follow
    said = report["forecast"]
    return row(runs, None, 0) | {
        "said_seconds": said["seconds"], "said_mb": said["memory"] / 1e6, "own_mb": runs.own_bytes / 1e6,
        "said_disk_mb": (said["hessian"] + said["beside"] + said["temporary"]) / 1e6,
    }  # fmt: skip
