"""Tokens per second of models, in turns, so that drift of the machine meets all of them alike."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyquant.errors import ConfigError
from pyquant.llama.model import Context, Model

SCHEMA = "pyquant.speed/1"

# (measurements done, all of them)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Rates:
    """Tokens per second of one model in every round, and the same round's rates of the first model."""

    rates: list[float]
    reference: list[float]

    def to_json(self) -> dict[str, Any]:
        ratios = [rate / reference for rate, reference in zip(self.rates, self.reference)]
        return {
            "tokens_per_second": statistics.median(self.rates),
            "low": min(self.rates),
            "high": max(self.rates),
            "ratio": statistics.median(ratios),
            "ratio_low": min(ratios),
            "ratio_high": max(ratios),
            "rounds": self.rates,
        }


@dataclass(frozen=True)
class SpeedReport:
    """Prompt processing and token generation of models; ratios are to the first, round by round."""

    n_prompt: int
    n_generate: int
    n_threads: int
    models: dict[str, tuple[int, Rates, Rates]]  # path to bytes, prompt, generation

    def to_json(self) -> dict[str, Any]:
        """The report as `pyquant speed --json` prints it."""
        return {
            "schema": SCHEMA,
            "n_prompt": self.n_prompt,
            "n_generate": self.n_generate,
            "n_threads": self.n_threads,
            "models": [
                {"model": path, "n_bytes": size, "prompt": p.to_json(), "generation": g.to_json()}
                for path, (size, p, g) in self.models.items()
            ],
        }


def measure_speed(
    models: Sequence[str | os.PathLike[str]],
    *,
    n_prompt: int = 512,
    n_generate: int = 128,
    rounds: int = 5,
    threads: int | None = None,
    progress: Progress | None = None,
) -> SpeedReport:
    """Measures what llama-bench does: a prompt of n_prompt tokens at once, n_generate one by one.

    Every round measures each model once, each test from an empty context; a first round is not
    counted. Raises ConfigError, ModelFileError and RuntimeLibraryError.
    """
    for name, value in {"prompt": n_prompt, "generate": n_generate, "rounds": rounds}.items():
        if value < 1:
            raise ConfigError(f"{name}: expected 1 or more, got {value}")
    paths = [Path(path) for path in models]
    if len(set(paths)) < len(paths):
        raise ConfigError("speed: a model is given twice")
    tests = {"prompt": (n_prompt, True), "generation": (n_generate, False)}
    measured: dict[tuple[Path, str], list[float]] = {(path, test): [] for path in paths for test in tests}
    with ExitStack() as stack:
        contexts = {path: _open(stack, path, max(n_prompt, n_generate), threads) for path in paths}
        for turn in range(rounds + 1):
            for done, ((path, test), rates) in enumerate(measured.items()):
                rate = _measure(contexts[path], *tests[test])
                if turn > 0:
                    rates.append(rate)
                if progress:
                    progress(turn * len(measured) + done + 1, (rounds + 1) * len(measured))
        n_threads = contexts[paths[0]].n_threads

    def rates_of(path: Path, test: str) -> Rates:
        return Rates(measured[path, test], measured[paths[0], test])

    return SpeedReport(
        n_prompt=n_prompt,
        n_generate=n_generate,
        n_threads=n_threads,
        models={
            str(path): (path.stat().st_size, rates_of(path, "prompt"), rates_of(path, "generation"))
            for path in paths
        },
    )


def _open(stack: ExitStack, path: Path, n_ctx: int, threads: int | None) -> Context:
    model = stack.enter_context(Model(path))
    return stack.enter_context(model.context(n_ctx=n_ctx, threads=threads))


def _measure(context: Context, n_tokens: int, at_once: bool) -> float:
    tokens = np.random.default_rng(0).integers(0, context.model.n_vocab, n_tokens)
    context.clear()
    begin = time.perf_counter()
    context.feed(tokens, at_once=at_once)
    return n_tokens / (time.perf_counter() - begin)
