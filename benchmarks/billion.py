"""A model of a billion weights: calibration, GPTQ and error propagation beside the passes alone.

`--layers N` takes fewer layers, and next to no vocabulary, which would be most of such a model. Every layer
costs the same, but the last: there the passes alone compute the feed-forward part for half of the tokens. So
ratios of times are a little above those of the whole. `--memory SIZE` bounds what passes keep.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.inputs import BILLION, PYQUANT, evaluation_text, model
from benchmarks.timing import Runs, row, versus

N_CTX, N_CHUNKS = 512, 128
SHORT, LONG = 4, 20  # chunks of two runs: their difference is passes and nothing else


def billion(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Each command once, the passes before and after: an hour or more."""
    source, text = _model(arguments), arguments.folder / "long-text.txt"
    text.write_text(evaluation_text(arguments).read_text() * 8)
    stats, output = arguments.folder / "billion-stats", arguments.folder / "billion-iq4_nl.gguf"
    common = [str(source), "--text", str(text), "--ctx", str(N_CTX), "--threads", str(arguments.threads)]

    def passes(n: int) -> Runs:
        return Runs(f"{n} chunks", [PYQUANT, "perplexity", *common, "--chunks", str(n)])

    short, long = passes(SHORT), passes(LONG)
    of_all = [*common, "--chunks", str(N_CHUNKS), "--random", "0", "--force"]
    calibrate = Runs(f"calibrate, {N_CHUNKS} chunks", [PYQUANT, "calibrate", *of_all, "-o", str(stats)])
    bounded = ["--mode", "ggml:IQ4_NL", "--hessian", str(stats), "--threads", str(arguments.threads)]
    quantize = Runs("quantize", [PYQUANT, "quantize", str(source), str(output), *bounded], [str(output)])
    ordered = [*quantize.command, "--error-propagation", str(N_CHUNKS)]
    if arguments.memory:
        ordered += ["--memory", arguments.memory]
    error_propagation = Runs(f"error propagation, {N_CHUNKS} chunks", ordered, [str(output)])
    for runs in (short, long, calibrate, quantize, error_propagation, short, long):
        runs.run()
    per_chunk = [(b - a) / (LONG - SHORT) for a, b in zip(short.seconds, long.seconds)]
    alone = Runs(f"passes alone, {N_CHUNKS} chunks", [], seconds=[N_CHUNKS * s for s in per_chunk])
    both = Runs("calibrate and quantize", [], seconds=[calibrate.median + quantize.median])
    both.peak_bytes = max(calibrate.peak_bytes, quantize.peak_bytes)
    alone.peak_bytes = long.peak_bytes
    output.unlink()
    stats.unlink()
    return [
        row(alone, None, 0),
        *(_beside(runs, alone) for runs in (calibrate, quantize, both, error_propagation)),
    ]


def _model(arguments: argparse.Namespace) -> Path:
    if arguments.layers is None:
        return model(arguments, BILLION, "billion-f16.gguf")
    part = replace(BILLION, n_layer=arguments.layers, n_vocab=512, tied=True)
    return model(arguments, part, f"billion-{arguments.layers}-layers-f16.gguf")


def _beside(runs: Runs, alone: Runs) -> dict[str, Any]:
    return row(runs, None, 0) | versus(alone.name, alone.seconds, [runs.median] * len(alone.seconds))
