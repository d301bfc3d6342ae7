"""A pass over tokens as calibration makes it beside llama.cpp's: up to the last layer's last matrix."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from typing import Any

import numpy as np

from benchmarks.inputs import WIDE, model
from pyquant import _core
from pyquant.data.generated import GeneratedModel
from pyquant.llama.context import Context
from pyquant.llama.model import Model
from pyquant.rounding.staged_context import PIECE, StagedContext

# 0.29 G weights, nearly all of them in layers.
MODEL = GeneratedModel(**WIDE, n_layer=7, n_vocab=512, tied=True)
N_CTX = 512


def passes(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Seconds of both in turns, over as many tokens as calibration computes at once."""
    source = model(arguments, MODEL, "wide-f16.gguf")
    tokens = np.random.default_rng(0).integers(0, MODEL.n_vocab, (PIECE // N_CTX, N_CTX)).astype(np.int32)
    seconds: dict[str, list[float]] = {"calibration": [], "llama.cpp": []}
    threads, together = arguments.threads, {"n_batch": PIECE, "n_ubatch": PIECE}
    with (
        Model(source, staged=True) as ours,
        Model(source) as theirs,
        StagedContext(ours, [f"blk.{MODEL.n_layer - 1}.ffn_down.weight"], [tokens], threads) as staged,
        theirs.context(n_ctx=N_CTX, n_seq=len(tokens), threads=threads, **together) as plain,
        tempfile.TemporaryFile() as file,
    ):
        n_bytes = staged.stages[-1].n_bytes
        states = _core.PassStates(1, n_bytes=n_bytes, memory=n_bytes, file=file.fileno())
        for _ in range(arguments.rounds + 1):
            begin = time.perf_counter()
            staged.run(0, None, 0, states, 0)
            seconds["calibration"].append(time.perf_counter() - begin)
            seconds["llama.cpp"].append(_plain(plain, tokens))
    counted = {who: its[1:] for who, its in seconds.items()}  # the first read the file
    ratios = [b / a for a, b in zip(*counted.values())]
    beside = {"times_as_fast": statistics.median(ratios), "low": min(ratios), "high": max(ratios)}
    return [
        {"command": f"pass of {who}, {PIECE:,} tokens", "seconds": statistics.median(its)}
        | (beside | {"peer": "llama.cpp"} if who == "calibration" else {})
        for who, its in counted.items()
    ]


def _plain(context: Context, tokens: np.ndarray) -> float:
    begin = time.perf_counter()
    context.clear()
    context.decode(tokens, 0, np.arange(N_CTX) == N_CTX - 1)
    return time.perf_counter() - begin
