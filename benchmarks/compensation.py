"""The search for scales beside llama-quantize's, and how fast errors are passed on."""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType as Type
from tests.passes import run_pass

from benchmarks.inputs import ORACLE, PYQUANT, model
from benchmarks.timing import Runs, interleave, row
from pyquant import _core
from pyquant.calibration.imatrix import write_imatrix
from pyquant.inspect.error_map import measure_error
from pyquant.models.model_file import ModelFile
from pyquant.quantize.types import quantizable
from tests.models import Model

# 0.29 G weights, nearly all of them in blocks.
MODEL = Model(
    n_embd=2048, n_ff=5632, n_layer=7, n_head=32, n_head_kv=4, n_vocab=512, tied=True, type=Type.F16
)
SHAPES = ((2048, 2048), (2048, 5632))  # rows, and how long they are


def compensation(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Whole commands on one thread, with one importance matrix, and the weighted error of what they
    write; then matrices in memory, with second moments."""
    source = model(arguments, MODEL, "wide-f16.gguf")
    imatrix = random_imatrix(source, arguments.folder / "wide-imatrix.gguf")
    results = []
    for kind in ("IQ4_NL", "Q4_K"):
        ours, theirs = (arguments.folder / f"{who}-{kind.lower()}.gguf" for who in ("pyquant", "llama"))
        weighted = Runs(
            f"search {kind}, pyquant",
            [PYQUANT, "quantize", source, ours, "--mode", f"ggml:{kind}", "--pure", "--threads", "1"]
            + ["--calibration", imatrix],
            clean=[ours],
        )
        stock = Runs(
            f"search {kind}, llama-quantize",
            [ORACLE / "llama-quantize", "--pure", "--imatrix", imatrix, source, theirs, kind, "1"],
            clean=[theirs],
        )
        interleave([weighted, stock], arguments.rounds)
        for runs, peer, path in ((weighted, stock, ours), (stock, None, theirs)):
            result = row(runs, peer, source.stat().st_size)
            result["weighted_snr_db"] = measure_error(source, path, imatrix=imatrix).total.weighted_snr_db
            results.append(result)
            path.unlink()
    return results + [rate for shape in SHAPES for rate in rates(arguments, *shape)]


def random_imatrix(source: Path, path: Path) -> Path:
    """Importances as uneven as those of trained models."""
    rng = np.random.default_rng(0)
    sums = {
        tensor.name: (rng.exponential(size=(1, tensor.n_per_row)).astype(np.float32) ** 2, np.ones(1))
        for tensor in ModelFile(source).tensors
        if tensor.name in quantizable(ModelFile(source))
    }
    write_imatrix(path, sums, datasets=[], chunk_size=1, sources=[source], force=True)
    return path


def rates(arguments: argparse.Namespace, n_rows: int, n_per_row: int) -> list[dict[str, Any]]:
    """Seconds to factorize the moments, and weights rounded per second with errors passed on."""
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(n_rows, n_per_row)).astype(np.float32)
    activations = rng.normal(size=(n_per_row, n_per_row)).astype(np.float32)
    moments = activations.T @ activations / np.float32(n_per_row)
    seconds: dict[str, list[float]] = {}

    def clock(what: str, work: Any) -> Any:
        begin = time.perf_counter()
        result = work()
        seconds.setdefault(f"{what}, {n_rows} x {n_per_row}", []).append(time.perf_counter() - begin)
        return result

    for _ in range(arguments.rounds):
        factor = clock("factorize", lambda: _core.factorize(moments, damping=0.01, together=256))
        for kind in (Type.IQ4_NL, Type.Q4_K):
            codec = _core.compensated_codec(int(kind), factor)
            for threads in sorted({1, arguments.threads}):
                what = f"{kind.name} on {threads} thread" + "s" * (threads > 1)
                clock(what, lambda codec=codec, threads=threads: run_pass(x, codec, n_threads=threads))
    middle = {what: statistics.median(times) for what, times in seconds.items()}
    return [
        {"command": what, "seconds": time_}
        | ({} if what.startswith("factorize") else {"weights_per_second": x.size / time_})
        for what, time_ in middle.items()
    ]
