"""How fast a machine is with a model: short passes, texts and a product, timed before a method's work."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from pyquant import _core
from pyquant.calibration.collect import learn_inputs
from pyquant.calibration.products import multiply
from pyquant.llama.chunks import BATCH, Chunks, make_context
from pyquant.llama.model import Model
from pyquant.llama.own_texts import OwnText, most_together, write_together
from pyquant.machine.cpu import n_threads
from pyquant.models.model_file import ModelFile
from pyquant.models.type_policy import quantizable

TOKENS = 128  # of a pass
RUNS, LONG = 8, 2.0  # at most of what is timed, and seconds of all
STEPS = 4  # tokens of texts, behind the first
SIDE = 1024  # of matrices that are multiplied


@dataclass(frozen=True)
class Probe:
    """What short runs tell.

    chunk_seconds: what a pass over a chunk takes.
    step_seconds: what texts take that are written together, for a token of each; 0 where none are.
    n_together: how many these are.
    collector: knows the matrices' inputs.
    """

    chunk_seconds: float
    step_seconds: float
    n_together: int
    collector: _core.Collector


def probe(model: ModelFile, n_ctx: int, threads: int | None, *, n_written: int) -> Probe:
    """Run short passes over chunks of n_ctx tokens.

    n_written: how many texts of these tokens the model generates. Raises ModelFileError: it cannot be run.
    """
    n_together = min(n_written, most_together(model, n_ctx))
    collector = _core.Collector(
        quantizable(model), with_output=True, n_threads=n_threads(threads), on_device=False, allows_bf16=False
    )
    with Model(model) as running:
        token = _pass_seconds(running, threads) / TOKENS
        step = _step_seconds(running, n_together, threads) if n_together else 0.0
        with make_context(running, n_ctx, threads=threads, n_ubatch=BATCH, observer=collector) as context:
            learn_inputs(context, Chunks(np.zeros((1, n_ctx), np.int32)), collector)
    return Probe(token * n_ctx, step, n_together, collector)


def _pass_seconds(model: Model, threads: int | None) -> float:
    tokens, wanted = np.zeros((1, TOKENS), np.int32), np.arange(TOKENS) == TOKENS - 1
    with model.context(n_ctx=TOKENS, threads=threads) as context:

        def run() -> None:
            context.clear()
            context.decode(tokens, 0, wanted)

        return _quickest(run)


def _step_seconds(model: Model, n_together: int, threads: int | None) -> float:
    ends: list[float] = []
    texts = [OwnText(0, number, lambda _: [0]) for number in range(n_together)]
    write_together(
        model, texts, STEPS + 1, threads=threads, observer=_core.Bf16Pass(),
        progress=lambda _: ends.append(time.perf_counter()),
    )  # fmt: skip
    return min(after - before for before, after in pairwise(ends))


@cache
def products_per_second(threads: int | None) -> float:
    """Time products of matrices with as many tokens."""
    x = np.zeros((SIDE, SIDE), np.float32)
    return SIDE**3 / _quickest(lambda: multiply(x, x, threads=threads))


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
