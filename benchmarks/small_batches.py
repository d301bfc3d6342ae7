"""Passes of few tokens, as drafts are verified in: T(n), beside stock llama.cpp's library, in turns."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.inputs import LARGE, ORACLE, model, quantized
from benchmarks.timing import versus
from pyquant import _core

MODES: dict[str, dict[str, str] | None] = {
    "F16": None,
    "Q8_0": {"mode": "q8_0"},
    "Q4_T": {"mode": "q8_table", "table": "basic", "store": "q4_t"},  # stock llama.cpp does not read it
}
TOKENS = (1, 2, 3, 4, 6, 8, 12, 16, 32)
DEPTH = 128  # tokens before those of the pass


def small_batches(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Seconds of a pass of n tokens, in multiples of a pass of one, and beside stock llama.cpp."""
    source = arguments.model or model(arguments, LARGE, "large-f16.gguf")
    results = []
    for name, settings in MODES.items():
        path = source
        if settings:
            path = quantized(arguments.folder / f"{source.stem}-{name.lower()}.gguf", source, **settings)
        own = arguments.folder / "lib"  # llama_cpp looks for this name
        own.mkdir(exist_ok=True)
        if not (own / "libllama.so").exists():
            (own / "libllama.so").symlink_to(_core.__file__)
        libraries = {"pyquant": own}
        if name != "Q4_T":
            libraries["stock"] = ORACLE
        seconds = in_turns(libraries, path, arguments.rounds, arguments.threads)
        results += [_row(name, n, seconds) for n in TOKENS]
    return results


def in_turns(
    libraries: dict[str, Path], path: Path, rounds: int, threads: int
) -> dict[tuple[str, int], list[float]]:
    """Seconds of every round, by library and number of tokens; a first round is not counted."""
    command = [sys.executable, "-m", "benchmarks.small_batch_times", str(path), str(DEPTH), str(threads)]
    seconds: dict[tuple[str, int], list[float]] = {(name, n): [] for n in TOKENS for name in libraries}
    with ExitStack() as stack:
        processes = {
            name: stack.enter_context(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env={**os.environ, "LLAMA_CPP_LIB_PATH": str(folder)},
                )
            )
            for name, folder in libraries.items()
        }
        for turn in range(rounds + 1):
            for (name, n), times in seconds.items():
                process = processes[name]
                assert process.stdin
                assert process.stdout
                print(n, file=process.stdin, flush=True)
                answer = process.stdout.readline()
                if not answer:
                    raise SystemExit(f"{' '.join(command)} failed")
                if turn > 0:
                    times.append(float(answer))
        for process in processes.values():
            assert process.stdin
            process.stdin.close()
    return seconds


def _row(name: str, n: int, seconds: dict[tuple[str, int], list[float]]) -> dict[str, Any]:
    ours = seconds["pyquant", n]
    result: dict[str, Any] = {
        "command": f"{name}, {n} token" + "s" * (n > 1),
        "seconds": statistics.median(ours),
        "of_one": _ratio(ours, seconds["pyquant", 1]),
    }
    if stock := seconds.get(("stock", n)):
        result |= {"stock_of_one": _ratio(stock, seconds["stock", 1])} | versus(
            "stock llama.cpp", stock, ours
        )
    return result


def _ratio(times: list[float], of_one: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(times, of_one))
