"""Tokens per second of models, in turns, so that drift of the machine meets all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyquant import limits
from pyquant.errors import ConfigError
from pyquant.llama.context import Context
from pyquant.llama.model import Model, path_of
from pyquant.models.model_file import AnyModel

SCHEMA = "pyquant.speed/1"

# (measurements done, all of them)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Rates:
    """Tokens per second of one model in one test.

    Attributes
    ----------
    rounds : list of float
        What every round measured.
    reference : list of float
        The same rounds' rates of the first model.
    """

    rounds: list[float]
    reference: list[float]

    @property
    def tokens_per_second(self) -> float:
        """The median of all rounds."""
        return statistics.median(self.rounds)

    @property
    def ratios(self) -> list[float]:
        """Rates over those of the first model, round by round."""
        return [rate / reference for rate, reference in zip(self.rounds, self.reference)]

    def to_json(self) -> dict[str, Any]:
        """Return them as `pyquant speed --json` prints `prompt` and `generation`."""
        return {
            "tokens_per_second": self.tokens_per_second,
            "low": min(self.rounds),
            "high": max(self.rounds),
            "ratio": statistics.median(self.ratios),
            "ratio_low": min(self.ratios),
            "ratio_high": max(self.ratios),
            "rounds": self.rounds,
        }


@dataclass(frozen=True)
class ModelSpeed:
    """One model's rates: at prompts, given at once, and at generation, one token after the other.

    model: its path. n_bytes: size of its file, or of all shards, in bytes.
    """

    model: str
    n_bytes: int
    prompt: Rates
    generation: Rates

    def to_json(self) -> dict[str, Any]:
        """Return it as `pyquant speed --json` prints each of its `models`."""
        return {
            "model": self.model,
            "n_bytes": self.n_bytes,
            "prompt": self.prompt.to_json(),
            "generation": self.generation.to_json(),
        }


@dataclass(frozen=True)
class SpeedReport:
    """Prompt processing and token generation of models; ratios are to the first, round by round."""

    n_prompt: int
    n_generate: int
    n_threads: int
    models: list[ModelSpeed]

    def to_json(self) -> dict[str, Any]:
        """Return the report as `pyquant speed --json` prints it."""
        return {
            "schema": SCHEMA,
            "n_prompt": self.n_prompt,
            "n_generate": self.n_generate,
            "n_threads": self.n_threads,
            "models": [model.to_json() for model in self.models],
        }


def measure_speed(
    models: Sequence[AnyModel],
    *,
    n_prompt: int = 512,
    n_generate: int = 128,
    rounds: int = 5,
    threads: int | None = None,
    progress: Progress | None = None,
) -> SpeedReport:
    """Measure what llama-bench does: a prompt at once, and tokens one by one.

    Every round measures each model once, each test from an empty context; a first round is not
    counted.

    Parameters
    ----------
    models
        Paths or ModelFiles; ratios are to the first.
    n_prompt, n_generate
        Tokens of the prompt, and tokens that are given one by one.
    rounds
        Measurements of each model.
    threads
        None: all cores.
    progress
        Called with measurements done and all of them.

    Raises
    ------
    ConfigError, ModelFileError, RuntimeLibraryError
    """
    limits.TOKENS.check("prompt", n_prompt)
    limits.TOKENS.check("generate", n_generate)
    limits.ROUNDS.check("rounds", rounds)
    paths = [path_of(model) for model in models]
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
        n_bytes = {path: context.model.file.n_bytes for path, context in contexts.items()}

    def rates_of(path: Path, test: str) -> Rates:
        return Rates(measured[path, test], measured[paths[0], test])

    return SpeedReport(
        n_prompt=n_prompt,
        n_generate=n_generate,
        n_threads=n_threads,
        models=[
            ModelSpeed(str(path), n_bytes[path], rates_of(path, "prompt"), rates_of(path, "generation"))
            for path in paths
        ],
    )


def _open(stack: ExitStack, path: Path, n_ctx: int, threads: int | None) -> Context:
    model = stack.enter_context(Model(path))
    return stack.enter_context(model.context(n_ctx=n_ctx, threads=threads))


def _measure(context: Context, n_tokens: int, at_once: bool) -> float:
    tokens = np.random.default_rng(0).integers(0, context.model.n_vocab, n_tokens).astype(np.int32)
    context.clear()
    begin = time.perf_counter()
    context.feed(tokens, at_once=at_once)
    return n_tokens / (time.perf_counter() - begin)
