"""Type Q4_T beside stock types on a model that is bound by memory: speed, sizes and the roofline."""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.inputs import MEMORY_BOUND, PYQUANT, model, quantized
from benchmarks.timing import Runs
from pyquant.evaluate.speed import measure_speed
from pyquant.models.model_file import ModelFile

# Pure: every matrix is of the type, so that types are compared and not mixtures.
MODES = {
    "Q4_T": {"mode": "q8_table", "table": "basic", "store": "q4_t"},
    "Q4_0": {"mode": "q4_0"},
    "IQ4_NL": {"mode": "ggml:IQ4_NL"},
    "Q8_0": {"mode": "q8_0"},
}
TARGETS = {"generation": "Q4_0", "prompt": "IQ4_NL"}


def table_type(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Tokens per second in turns; file and peak memory; generation against the memory's bandwidth."""
    files = {name: of_mode(arguments, name) for name in MODES}
    found = measure_speed(
        list(files.values()), n_prompt=256, n_generate=24, rounds=arguments.rounds, threads=arguments.threads
    ).to_json()["models"]
    rates = dict(zip(files, found))
    results = []
    for test, target in TARGETS.items():
        for name, of_model in rates.items():
            results.append(
                {
                    "command": f"{test}, {name}",
                    "tokens_per_second": max(of_model[test]["rounds"]),
                    **versus(target, of_model[test]["rounds"], rates[target][test]["rounds"]),
                }
            )
    bandwidth = read_bandwidth(arguments.threads, arguments.rounds)
    for name, path in files.items():
        per_token = sum(t.n_bytes for t in ModelFile(path).tensors if t.name != "token_embd.weight")
        generated = max(rates[name]["generation"]["rounds"])
        results.append(
            {
                "command": f"roofline, {name}",
                "tokens_per_second": bandwidth / per_token,
                "reached": generated * per_token / bandwidth,
                "bandwidth_gb_per_second": bandwidth / 1e9,
            }
        )
    return results + [sizes(arguments, name, path) for name, path in files.items()]


def of_mode(arguments: argparse.Namespace, name: str) -> Path:
    source = model(arguments, MEMORY_BOUND, "memory-bound-f16.gguf")
    path = arguments.folder / f"memory-bound-{name.lower()}.gguf"
    return quantized(path, source, **MODES[name], pure=True)


def versus(peer: str, ours: list[float], theirs: list[float]) -> dict[str, Any]:
    """The ratio of the fastest rounds, which the machine disturbed least; the spread is over rounds."""
    each = [a / b for a, b in zip(ours, theirs)]
    return {"peer": peer, "times_as_fast": max(ours) / max(theirs), "low": min(each), "high": max(each)}


def read_bandwidth(n_threads: int, rounds: int) -> float:
    """Bytes per second of memory that all threads together can read: the best of some searches for a
    byte that is not there, by C's memchr, in more memory than caches hold."""
    size = 256 << 20
    blocks = [ctypes.create_string_buffer(b"\1" * size, size) for _ in range(n_threads)]
    memchr = ctypes.CDLL(None).memchr
    memchr.argtypes, memchr.restype = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t), ctypes.c_void_p
    seconds = []
    with ThreadPoolExecutor(n_threads) as pool:
        for _ in range(4 * rounds):
            begin = time.perf_counter()
            assert not any(pool.map(lambda block: memchr(block, 0, size), blocks))
            seconds.append(time.perf_counter() - begin)
    return n_threads * size / min(seconds)


def sizes(arguments: argparse.Namespace, name: str, path: Path) -> dict[str, Any]:
    """The file, and the peak memory of a process that runs it."""
    command = [PYQUANT, "speed", str(path), "--prompt", "32", "--generate", "4", "--rounds", "1"]
    runs = Runs(f"size, {name}", [*command, "--threads", str(arguments.threads)])
    runs.run()
    return {
        "command": runs.name,
        "seconds": statistics.median(runs.seconds),
        "file_mb": path.stat().st_size / 1e6,
        "peak_mb": runs.peak_bytes / 1e6,
    }
