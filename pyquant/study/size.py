"""Making a study's quantized models, and what they take."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from pyquant.fit.evaluation import Evaluation
from pyquant.fit.method.expected_parts import ExpectedParts
from pyquant.fit.method.quantize import quantize
from pyquant.fit.mixtures import WantedSize
from pyquant.fit.step_search import StepSearch
from pyquant.fit.target import Target
from pyquant.formulas import bits_per_weight
from pyquant.models.model_file import ModelFile
from pyquant.models.pqz.pack import StreamUse
from pyquant.models.pqz.pqz_file import PQZ_SUFFIX
from pyquant.models.tensor_reader import Progress
from pyquant.rounding.quantize_model import quantize_model
from pyquant.rounding.to_pqz import quantize_to_pqz
from pyquant.schemes import Mode
from pyquant.schemes.ecsq import Ecsq


def make(
    source: Path, mode: Mode, file: Path, threads: int | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Quantize a model, as an entropy-coded file where the file's name says so.

    file: what is written; replaced if it exists.
    Returns: number of parameters, errors of the weights, and what `size_of` says. `code_bits` are per weight
    of the tensors whose type changed, as stored: what is compared where others are left as they are.
    """
    streams = None
    if file.suffix == PQZ_SUFFIX:
        done = quantize_to_pqz(source, file, mode, threads=threads, force=True, progress=progress)
        quantized, streams = done.quantized, done.pqz.streams
    else:
        quantized = quantize_model(source, file, mode, threads=threads, force=True, progress=progress)
    return _figures(quantized.to_json(), file, streams)


def make_by_method(
    source: Path,
    file: Path,
    threads: int | None,
    progress: Callable[[float, str], None],
    *,
    wanted: str | WantedSize,
    **options: Any,
) -> dict[str, Any]:
    """Quantize a model to a type or a size by a method.

    file: as of `make`; a run that was killed is gone on with.
    options: further ones of `quantize`.
    Returns: what `make` does, and `method`, `stages` and `mix`, as `Quantized` has them.
    """
    expected = ExpectedParts()

    def show(what: str, done: int, total: int) -> None:
        expected.reach(what)
        share = done / max(total, 1)
        progress(expected.share(share), f"{what} {share:.0%}")  # of bytes, chunks or layers

    def expect(parts: Sequence[tuple[str, float]]) -> None:
        nonlocal expected
        expected = ExpectedParts(parts)

    done = quantize(
        source, file, wanted, threads=threads, force=True, progress=show, expect=expect, **options
    ).to_json()
    return _figures(done, file) | {key: done[key] for key in ("method", "stages", "mix")}


def _figures(
    report: dict[str, Any], file: Path, streams: Collection[StreamUse] | None = None
) -> dict[str, Any]:
    errors = {key: report[key] for key in ("parameters", "rmse", "snr_db", "zero_share")}
    changed = [tensor for tensor in report["tensors"] if tensor["type"] != tensor["source_type"]]
    if streams is None:
        n_bytes = sum(tensor["n_bytes"] for tensor in changed)
    else:
        n_bytes = coded_bytes(streams, {tensor["type"] for tensor in changed})
    bits = 8 * n_bytes / sum(tensor["n_weights"] for tensor in changed) if changed else None
    return errors | size_of(file, streams) | {"code_bits": bits}


def coded_bytes(streams: Collection[StreamUse], types: Collection[str]) -> int:
    """Return the bytes of all tensors of these types in an entropy-coded file."""
    return sum(stream.coded_bytes for stream in streams if stream.type in types)


def size_of(file: Path, streams: Collection[StreamUse] | None = None) -> dict[str, Any]:
    """Return a model file's size: all its bytes, and bits per weight.

    streams: those of an entropy-coded file.
    Returns: among others `bits`, per weight of the whole file, and `tensor_bits`, of all tensors as stored.
    """
    model = ModelFile(file)
    types: dict[str, int] = {}
    for tensor in model.tensors:
        types[tensor.type.name] = types.get(tensor.type.name, 0) + tensor.n_weights
    n_bytes = (
        sum(tensor.n_bytes for tensor in model.tensors) if streams is None else coded_bytes(streams, types)
    )
    return {
        "bytes": model.n_bytes,
        "sha256": model.sha256(),
        "n_weights": model.n_weights,
        "weights_by_type": dict(sorted(types.items())),
        "tensor_bits": bits_per_weight(n_bytes, model.n_weights),
        "bits": bits_per_weight(model.n_bytes, model.n_weights),
        "code_bits": None,
    }


def find_step(
    source: Path,
    mode: Mode,
    text: Path | None,
    progress: Callable[[float, str], None],
    *,
    target: Target,
    threads: int | None = None,
    n_ctx: int = 512,
    n_chunks: int | None = None,
) -> Mode:
    """Find the step of mode `ecsq` that reaches a target.

    Parameters
    ----------
    mode
        Mode `ecsq` with any step.
    text
        What KLD is measured on, where the target needs it.
    progress
        Told what came out of each step.
    n_ctx, n_chunks
        How KLD is measured.

    Raises
    ------
    ConfigError
        No step does it.
    """
    assert isinstance(mode, Ecsq)
    search = StepSearch(source, mode, threads=threads, tell=lambda line: progress(0.0, line))
    return search.find(target, Evaluation(text, n_ctx, n_chunks) if text else None)
