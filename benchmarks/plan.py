"""What `quantize --method` says before its work beside what came: time and memory, and passes alone.

Models of the widths that people run, with few layers: all layers cost the same. `--model FILE` takes another.
Memory is what the process had for itself at the most: the mapped model is not in it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from gguf import GGMLQuantizationType as Type

from benchmarks.inputs import PYQUANT, evaluation_text, model
from benchmarks.timing import Runs, row
from pyquant.data.generated import GeneratedModel

MODELS = {
    "8b-2-layers-f16.gguf": GeneratedModel(
        n_embd=4096, n_ff=14336, n_layer=2, n_head=32, n_head_kv=8, n_vocab=128_256, type=Type.F16
    ),
    "30b-a3b-2-layers-f16.gguf": GeneratedModel(
        n_embd=2048, n_ff=768, n_layer=2, n_head=32, n_head_kv=4, n_vocab=32_000, n_expert=128, n_used=8,
        type=Type.F16,
    ),
}  # fmt: skip
CHUNKS, SHORT, LONG = 64, 2, 10  # of 512 tokens: of a calibration, and of two passes alone


def plan(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Each method once on each model."""
    text = evaluation_text(arguments)
    text.write_text(text.read_text() * 4)
    named = [model(arguments, generated, name) for name, generated in MODELS.items()]
    results = []
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


def _method(source: Path, method: str, given: list[str], per_chunk: float, output: Path) -> dict[str, Any]:
    wanted = ["Q4_K_M", "--method", method, "--calibration-chunks", str(CHUNKS), "--json", *given]
    command = [PYQUANT, "quantize", str(source), str(output), *wanted]
    runs = Runs(f"{source.stem} {method}", command, clean=[str(output)])
    runs.run()
    output.unlink()
    said = json.loads(runs.said[runs.said.index("\n{") :])["forecast"]
    alone = CHUNKS * per_chunk
    return row(runs, None, 0) | {
        "said_seconds": said["seconds"], "said_mb": said["memory"] / 1e6, "own_mb": runs.own_bytes / 1e6,
        "of_passes": runs.median / alone,
    }  # fmt: skip
