"""The search for scales beside llama-quantize's, and how fast errors are passed on."""

from __future__ import annotations

import argparse
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from benchmarks.inputs import ORACLE, PYQUANT, layers
from benchmarks.timing import Runs, interleave, row
from pyquant import _core
from pyquant.calibration.imatrix import write_imatrix
from pyquant.inspect.error_map import measure_error
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_reader import TensorReader
from pyquant.models.type_policy import quantizable
from pyquant.rounding.factors import GRID_TYPES
from pyquant.rounding.output_side import round_rows, row_factor

KINDS = (Type.IQ4_NL, Type.Q4_K, *GRID_TYPES)
MATRICES = ("blk.0.attn_q.weight", "blk.0.ffn_down.weight")  # 2048 rows of 2048, and of 5632
BY_ROWS = (Type.IQ4_NL, Type.Q4_K)  # with an output-side Hessian as well
TOKENS = 2048  # that are summed up


def gptq(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Whole commands on one thread, with one importance matrix, and the weighted error of what they
    write: our search, GGML's own by pyquant and by llama-quantize; then single matrices, with Hessians."""
    source = layers(arguments)
    imatrix = random_imatrix(source, arguments.folder / "wide-imatrix.gguf")
    results = []
    for kind in ("IQ4_NL", "Q4_K"):
        ours, same, theirs = (
            arguments.folder / f"{who}-{kind.lower()}.gguf" for who in ("pyquant", "ggml", "llama")
        )
        common = ["--mode", f"ggml:{kind}", "--pure", "--threads", "1"]
        weighted = Runs(
            f"search {kind}, pyquant",
            [PYQUANT, "quantize", source, ours, *common, "--hessian", imatrix],
            clean=[ours],
        )
        ggmls = Runs(
            f"GGML's search {kind}, pyquant",
            [PYQUANT, "quantize", source, same, *common, "--imatrix", imatrix],
            clean=[same],
        )
        stock = Runs(
            f"search {kind}, llama-quantize",
            [ORACLE / "llama-quantize", "--pure", "--imatrix", imatrix, source, theirs, kind, "1"],
            clean=[theirs],
        )
        interleave([weighted, ggmls, stock], arguments.rounds)
        for runs, peer, path in ((weighted, stock, ours), (ggmls, stock, same), (stock, None, theirs)):
            result = row(runs, peer, source.stat().st_size)
            result["weighted_snr_db"] = measure_error(source, path, imatrix=imatrix).total.weighted_snr_db
            results.append(result)
            path.unlink()
    return results + [rate for name in MATRICES for rate in rates(arguments, source, name)]


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


def rates(arguments: argparse.Namespace, source: Path, name: str) -> list[dict[str, Any]]:
    """Seconds to sum up and factorize a Hessian, and weights rounded per second with errors passed on."""
    model = ModelFile(source)
    (tensor,) = (t for t in model.tensors if t.name == name)
    n = tensor.n_per_row
    rng = np.random.default_rng(0)
    hessian, output_hessian = (random_hessian(width, rng) for width in (n, tensor.n_rows))
    rows = row_factor(output_hessian, 1.0)
    tokens, weights = rng.normal(size=(TOKENS, n)).astype(np.float32), tensor.weights()
    each_threads = sorted({1, arguments.threads})
    seconds: dict[str, list[float]] = {}

    def clock(what: str, work: Any) -> Any:
        begin = time.perf_counter()
        result = work()
        seconds.setdefault(f"{what}, {tensor.n_rows} x {n}", []).append(time.perf_counter() - begin)
        return result

    def encode(what: str, encoder: _core.Encoder, **importance: NDArray[np.float32]) -> None:
        for threads in each_threads:
            with TensorReader(model, [tensor], threads, None) as reader:
                clock(
                    f"{what} on {of(threads)}",
                    lambda reader=reader: reader.run(tensor, target=encoder, **importance),
                )

    ones = np.ones(n, np.float32)
    for kind in GRID_TYPES:  # GGML looks for the neighbors of points, once
        _core.ggml_encoder(int(kind)).encode(np.ones((1, n), np.float32), ones)
    for _ in range(arguments.rounds):
        for threads in each_threads:
            sums = partial(_core.sum_rows, tokens, 1.0, bf16=_core.HAS_BF16_PRODUCTS, n_threads=threads)
            clock(f"sums over {TOKENS:,} tokens on {of(threads)}", sums)
        for kind in KINDS:
            together = _core.columns_together(int(kind))
            factor = clock("factorize", partial(_core.factorize, hessian, dampening=0.01, together=together))
            encoder = _core.gptq_encoder(int(kind), factor)
            encode(kind.name, encoder)
            for threads in each_threads if kind in BY_ROWS else []:
                by_rows = partial(round_rows, weights, rows, encoder, threads=threads)
                clock(f"{kind.name} with an output-side Hessian on {of(threads)}", by_rows)
            if kind in GRID_TYPES:
                encode(f"GGML's {kind.name}", _core.ggml_encoder(int(kind)), importance=ones)
    middle = {what: statistics.median(times) for what, times in seconds.items()}
    return [
        {"command": what, "seconds": time_}
        | ({} if what.startswith(("factorize", "sums")) else {"weights_per_second": tensor.n_weights / time_})
        for what, time_ in middle.items()
    ]


def random_hessian(n: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """(n, n), of inputs that do not go together."""
    activations = rng.normal(size=(n, n)).astype(np.float32)
    return activations.T @ activations / np.float32(n)


def of(threads: int) -> str:
    """Say how many threads."""
    return f"{threads} thread" + "s" * (threads > 1)
