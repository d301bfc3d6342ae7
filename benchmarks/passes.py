"""Calibration beside llama.cpp: a pass up to the last layer's last matrix, and texts that a model writes.

Gradients of a chunk are beside those of float32 products.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.inputs import LAYERS, layers
from benchmarks.timing import Runs, row
from pyquant import _core
from pyquant.calibration.gradients.llama_graph import LlamaGraph
from pyquant.llama.model import Model
from pyquant.llama.own_texts import MOST, OwnText, write_together
from pyquant.models.model_file import ModelFile
from pyquant.rounding.staged_context import PIECE, StagedContext

N_CTX, STEPS = 512, 24
IN_FLOAT32 = ", products of float32"


def passes(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Seconds of both in turns, over as many tokens as calibration computes at once."""
    source, threads = layers(arguments), arguments.threads
    tokens = np.random.default_rng(0).integers(0, LAYERS.n_vocab, (PIECE // N_CTX, N_CTX)).astype(np.int32)
    last, together = np.arange(N_CTX) == N_CTX - 1, {"n_batch": PIECE, "n_ubatch": PIECE}
    calibration, stock = (
        Runs(f"pass of {who}, {PIECE:,} tokens", []) for who in ("calibration", "llama.cpp")
    )
    with (
        Model(source, staged=True) as ours,
        Model(source) as theirs,
        StagedContext(ours, [f"blk.{LAYERS.n_layer - 1}.ffn_down.weight"], [tokens], threads) as staged,
        theirs.context(n_ctx=N_CTX, n_seq=len(tokens), threads=threads, **together) as plain,
        tempfile.TemporaryFile() as file,
    ):
        n_bytes = staged.stages[-1].n_bytes
        states = _core.PassStates(1, n_bytes=n_bytes, memory=n_bytes, file=file.fileno())

        def decode() -> None:
            plain.clear()
            plain.decode(tokens, 0, last)

        for _ in range(arguments.rounds + 1):
            _clock(calibration, lambda: staged.run(0, None, 0, states, 0))
            _clock(stock, decode)
    texts, exact = (Runs(f"{MOST} texts of {STEPS} tokens{how}", []) for how in ("", IN_FLOAT32))
    own = [OwnText(0, number, lambda _: [1]) for number in range(MOST)]
    with Model(source) as writer:
        for _ in range(arguments.rounds + 1):
            for runs, observer in ((texts, _core.Bf16Pass()), (exact, None)):
                write = partial(write_together, writer, own, STEPS, threads=threads, observer=observer)
                _clock(runs, write)
    gradients, in_float32 = (Runs(f"gradients of {N_CTX} tokens{how}", []) for how in ("", IN_FLOAT32))
    has_products = _core.HAS_BF16_PRODUCTS
    for _ in range(arguments.rounds + 1):
        for runs, of_bf16 in ((gradients, has_products), (in_float32, False)):
            _core.HAS_BF16_PRODUCTS = of_bf16
            _clock(runs, partial(_follow, LlamaGraph(ModelFile(source), threads=threads), tokens[0]))
    _core.HAS_BF16_PRODUCTS = has_products
    pairs = (calibration, stock), (texts, exact), (gradients, in_float32)
    for runs in chain(*pairs):
        del runs.seconds[0]  # it read the file
    return [row(*both, 0) for ours, peer in pairs for both in ((ours, peer), (peer, None))]


def _follow(graph: LlamaGraph, tokens: NDArray[np.int32]) -> None:
    streams = graph.streams(tokens)
    graph.backwards(streams, graph.logits(streams[-1]), lambda name, gradients: None)


def _clock(runs: Runs, work: Callable[[], object]) -> None:
    begin = time.perf_counter()
    work()
    runs.seconds.append(time.perf_counter() - begin)
