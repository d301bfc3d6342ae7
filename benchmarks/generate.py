"""`make bench BENCH=generate`: tokens per second of generating, and what drawing and grammars take of them.

Many completions side by side beside one after the other; one completion beside llama-completion; completions
in grammars of JSON and SQL beside free ones, and the time that a token takes in the grammar beside its
forward pass; a draw by itself. `--model` takes a model that people run.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.inputs import ORACLE
from benchmarks.timing import versus
from pyquant import data
from pyquant.generation.grammar.engine import Compiled
from pyquant.generation.grammar.engines import make_engine
from pyquant.generation.grammar.grammar import GRAMMARS, read_grammar
from pyquant.generation.sampling.generate import generate as write
from pyquant.generation.sampling.generate import make_plan
from pyquant.generation.sampling.prompt import Prompt
from pyquant.generation.sampling.result import Sample, Times
from pyquant.generation.sampling.sampling import Sampling
from pyquant.llama.model import Model

PROMPT = Prompt("Once upon a time there was a")
ALL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
N_TEXTS, N_TOKENS = 100, 32
N_GREEDY = 128
N_GRAMMAR = 10
VOCABULARIES = (49_152, 262_144)
RATE = re.compile(r"eval time = .*?([0-9.]+) tokens per second\)\s*$", re.MULTILINE)


def generate(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Writing beside llama-completion and beside itself, in turns."""
    path = arguments.model or data.model_path()
    with Model(path) as model:
        batches = [_together(model, arguments, n) for n in (16, 1)]
        alone: list[Callable[[], float]] = [
            lambda: _greedy(model, arguments.threads),
            lambda: _completion(path, arguments.threads),
        ]
        rows = _versus(("100 completions, 16 side by side", "one after the other"), batches, arguments.rounds)
        rows += _versus(("1 text, greedy", "llama-completion"), alone, arguments.rounds)
        for name in ("json", "sql"):
            rows += _grammar(model, name, arguments)
    return rows + [_draw(n_vocab) for n_vocab in VOCABULARIES]


def _versus(names: tuple[str, str], rates: list[Callable[[], float]], rounds: int) -> list[dict[str, Any]]:
    """Measure both in turns: what the machine does beside meets them alike."""
    ours, theirs = zip(*[[rate() for rate in rates] for _ in range(rounds)])
    return [
        {"command": names[0], "tokens_per_second": statistics.median(ours)} | versus(names[1], ours, theirs),
        {"command": names[1], "tokens_per_second": statistics.median(theirs)},
    ]


def _together(model: Model, arguments: argparse.Namespace, n_parallel: int) -> Callable[[], float]:
    # One after the other, a tenth of the completions is as good.
    n_completions = N_TEXTS if n_parallel > 1 else N_TEXTS // 10
    plan = make_plan(model, [PROMPT], n_samples=n_completions, max_tokens=N_TOKENS, n_parallel=n_parallel)

    def rate() -> float:
        begin = time.perf_counter()
        samples = write(model, plan, Sampling(**ALL), threads=arguments.threads)
        n_tokens = sum(len(sample.log_p) for sample in samples)
        return n_tokens / (time.perf_counter() - begin)

    return rate


def _greedy(model: Model, threads: int) -> float:
    """Tokens per second from the first token to the last, as llama-completion counts them."""
    times: list[float] = []
    plan = make_plan(model, [PROMPT], max_tokens=N_GREEDY)
    list(
        write(
            model,
            plan,
            Sampling(temperature=0),
            threads=threads,
            on_token=lambda *_: times.append(time.perf_counter()),
        )
    )
    return (len(times) - 1) / (times[-1] - times[0])


def _completion(path: Path, threads: int) -> float:
    command = [str(ORACLE / "llama-completion"), "-m", str(path), "-p", str(PROMPT.text), "-n", str(N_GREEDY)]
    command += ["--temp", "0", "-no-cnv", "-t", str(threads), "--ignore-eos", "--perf"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    rates = RATE.findall(done.stderr)  # of the prompt, then of the completion
    return float(rates[-1])


def _grammar(model: Model, name: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Completions in a grammar beside free ones; mask and state of engine lr, by a forward pass."""
    compiled = make_engine("lr", model.vocabulary).compile(read_grammar(GRAMMARS / f"{name}.lark"))
    plan = make_plan(model, [PROMPT], n_samples=N_GRAMMAR, max_tokens=N_GREEDY, n_parallel=1)
    times = Times()
    written: list[Sample] = []

    def rate(grammar: Compiled | None) -> float:
        begin = time.perf_counter()
        samples = list(
            write(model, plan, Sampling(**ALL), grammar=grammar, threads=arguments.threads, times=times)
        )
        seconds = time.perf_counter() - begin
        written.extend(samples)
        return sum(len(sample.log_p) for sample in samples) / seconds

    names = (f"completions in {name}.lark", "completions without a grammar")
    rows = _versus(names, [lambda: rate(compiled), lambda: rate(None)], arguments.rounds)
    forward = times.forward / sum(len(sample.log_p) for sample in written)
    seconds, n_masks, words = 0.0, 0, np.empty(compiled.n_words, np.int32)
    for sample in written[:N_GRAMMAR]:  # the first round's, in the grammar
        state = compiled.start()
        for token in sample.tokens:
            begin = time.perf_counter()
            state.mask(words)
            state.advance(token)
            seconds += time.perf_counter() - begin
            n_masks += 1
    each = seconds / n_masks
    return [*rows, {"command": f"{name}.lark, each token", "seconds": each, "share": each / forward}]


def _draw(n_vocab: int) -> dict[str, Any]:
    logits = np.random.default_rng(0).normal(0, 3, (1, n_vocab)).astype(np.float32)
    number, sampling, seconds = np.array([0.4]), Sampling(**ALL), []
    for _ in range(300):
        begin = time.perf_counter()
        sampling.draw(logits, number)
        seconds.append(time.perf_counter() - begin)
    return {"command": f"a draw from {n_vocab:,} tokens", "seconds": statistics.median(seconds)}
