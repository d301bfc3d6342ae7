"""Packing and unpacking beside copying the GGUF, and beside compressing it as a whole."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.inputs import BILLION, PYQUANT, model, quantized
from benchmarks.timing import Runs, interleave, row
from pyquant.data.generated import GeneratedModel
from pyquant.models.pqz.pack import pack_model
from pyquant.models.pqz.pqz_file import PqzFile

# Codes of 3.4, 7.3 and 4.0 bits, and of the source the halves themselves.
MODES: dict[str, dict[str, Any]] = {
    "q4_0": {"mode": "q4_0"},
    "q8_0": {"mode": "q8_0"},
    "q8_table": {"mode": "q8_table", "table": "balanced"},
}
WHOLE = """import sys, zstandard
with open(sys.argv[1], "rb") as source, open(sys.argv[2], "wb") as output:
    zstandard.ZstdCompressor(level=1, threads=int(sys.argv[3])).copy_stream(source, output)"""


def pqz(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures in turns, with the output in the page cache and with the output on the disk."""
    source = model(arguments, BILLION, "billion-f16.gguf")
    stock = {"f16": source}
    for name, settings in MODES.items():
        stock[name] = quantized(arguments.folder / f"billion-{name}.gguf", source, **settings, pure=True)
    results = [_start(arguments)]
    for name, path in stock.items():
        results += _measure(arguments, name, path)
    return results


def _start(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure unpacking where there is next to nothing to unpack."""
    source = model(arguments, GeneratedModel(), "tiny-f32.gguf")
    packed, back = arguments.folder / "tiny.pqz", arguments.folder / "out.gguf"
    pack_model(source, packed, force=True)
    runs = Runs("unpack 1 MB: start", [PYQUANT, "unpack", str(packed), str(back)], clean=[str(back)])
    interleave([runs], arguments.rounds)
    back.unlink()
    return row(runs, None, source.stat().st_size)


def _measure(arguments: argparse.Namespace, name: str, stock: Path) -> list[dict[str, Any]]:
    packed, back, whole = (str(arguments.folder / file) for file in ("out.pqz", "out.gguf", "out.zst"))
    threads = str(arguments.threads)
    unpacking = [PYQUANT, "unpack", packed, back, "--threads", threads]
    runs = {
        "pack": [PYQUANT, "pack", str(stock), packed, "--threads", threads],
        "zstd": [sys.executable, "-c", WHOLE, str(stock), whole, threads],
        "unpack": unpacking,
        "cp": ["cp", str(stock), back],
        "unpack to disk": ["sh", "-c", f"{' '.join(unpacking)} && sync {back}"],
        "cp to disk": ["sh", "-c", f"cp {stock} {back} && sync {back}"],
    }
    cleaned = {"pack": packed, "zstd": whole}
    timed = {
        kind: Runs(f"{kind} {name}", command, clean=[cleaned.get(kind, back)])
        for kind, command in runs.items()
    }
    interleave(list(timed.values()), arguments.rounds)
    n_bytes = stock.stat().st_size
    rows = [
        row(timed[ours], timed[peer], n_bytes)
        for ours, peer in (("pack", "zstd"), ("unpack", "cp"), ("unpack to disk", "cp to disk"))
    ]
    rows.append(_decoding(arguments, name, stock, Path(packed), os.path.getsize(whole)))
    for file in (packed, back, whole):
        os.unlink(file)
    return rows


def _decoding(
    arguments: argparse.Namespace, name: str, stock: Path, packed: Path, zstd_bytes: int
) -> dict[str, Any]:
    report = pack_model(stock, packed, force=True, threads=arguments.threads)
    largest = report.streams[0]
    file, seconds, wall = PqzFile(packed), [], []
    for _ in range(arguments.rounds):
        begin = time.process_time()  # of this process: what others do on the machine does not count
        file.verify(1)
        seconds.append(time.process_time() - begin)
        begin = time.perf_counter()
        file.verify(arguments.threads)
        wall.append(time.perf_counter() - begin)
    n_codes = report.n_weights
    return {
        "command": f"{name}, {largest.type} {largest.content}",
        "coded_bits": 8 * largest.coded_bytes / n_codes,
        "entropy": 8 * largest.entropy_bytes / n_codes,
        "codes_per_second": n_codes / min(seconds),
        "decoding_seconds": min(wall),
        "gguf_bytes": report.source_bytes,
        "packed_bytes": report.output_bytes,
        "zstd_bytes": zstd_bytes,
    }
