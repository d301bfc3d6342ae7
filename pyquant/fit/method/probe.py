"""How fast a machine is with a model: short passes and a product, timed before a method's work."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from pyquant import _core
from pyquant.calibration.collect import learn_inputs
from pyquant.llama.chunks import BATCH, Chunks, make_context
from pyquant.llama.model import Model
from pyquant.llama.own_texts import TOGETHER
from pyquant.machine.cpu import n_threads
from pyquant.models.model_file import ModelFile
from pyquant.models.type_policy import quantizable

TOKENS = 128  # of a pass
RUNS, LONG = 8, 2.0  # at most of what is timed, and seconds of all
SIDE = 1024  # of matrices that are multiplied


@dataclass(frozen=True)
class Probe:
    """What short runs tell.

    chunk_seconds: what a pass over a chunk takes. step_seconds: what texts take that are written together,
    for a token of each; 0 where none are. collector: knows the matrices' inputs.
    """

    chunk_seconds: float
    step_seconds: float
    collector: _core.Collector


def probe(model: ModelFile, n_ctx: int, threads: int | None, *, writes: bool) -> Probe:
    """Run short passes over chunks of n_ctx tokens.

    writes: whether the model writes texts. Raises ModelFileError: it cannot be run.
    """
    collector = _core.Collector(
        quantizable(model), with_output=True, n_threads=n_threads(threads), on_device=False
    )
    with Model(model.path) as running:
        token = _pass_seconds(running, TOKENS, threads) / TOKENS
        step = _pass_seconds(running, TOGETHER, threads, _core.Bf16Pass()) if writes else 0.0
        with make_context(running, n_ctx, threads=threads, n_ubatch=BATCH, observer=collector) as context:
            learn_inputs(context, Chunks(np.zeros((1, n_ctx), np.int32)), collector)
    return Probe(token * n_ctx, step, collector)


def _pass_seconds(
    model: Model, n_tokens: int, threads: int | None, observer: _core.Bf16Pass | None = None
) -> float:
    tokens, wanted = np.zeros((1, n_tokens), np.int32), np.arange(n_tokens) == n_tokens - 1
    with model.context(n_ctx=n_tokens, threads=threads, observer=observer) as context:

        def run() -> None:
            context.clear()
            context.decode(tokens, 0, wanted)

        return _quickest(run)


@cache
def products_per_second() -> float:
    """Time numpy's products of float32."""
    x = np.zeros((SIDE, SIDE), np.float32)
    return SIDE**3 / _quickest(lambda: x @ x)


def _quickest(run: Callable[[], object]) -> float:
    """Time some runs. The quickest counts: others wait for the disk or for other programs."""
    begin, quickest = time.perf_counter(), math.inf
    for number in range(RUNS):
        started = time.perf_counter()
        run()
        quickest = min(quickest, time.perf_counter() - started)
        if number and time.perf_counter() - begin > LONG:
            break
    return quickest
