"""Making a study's quantized models, and what they take."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from pyquant.fit.step_search import Evaluation, StepSearch
from pyquant.models.model_file import ModelFile
from pyquant.models.pqz.pack import StreamUse
from pyquant.models.tensor_reader import Progress
from pyquant.quantize.quantize_model import quantize_model
from pyquant.quantize.to_pqz import SUFFIX, quantize_to_pqz
from pyquant.schemes import Mode


def make(
    source: Path, mode: Mode, file: Path, threads: int | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Quantizes a model, packs it where the file's name says so, and says what came out: parameters,
    error of the weights, and `size_of`.

    quantized_bits: per weight, of the tensors whose type changed, as stored: what is compared where
    others are left as they are. Raises what `quantize_model` and `pack_model` raise.
    """
    streams = None
    if file.suffix == SUFFIX:
        done = quantize_to_pqz(source, file, mode, threads=threads, force=True, progress=progress)
        quantized, streams = done.quantized, done.packed.streams
    else:
        quantized = quantize_model(source, file, mode, threads=threads, force=True, progress=progress)
    result = quantized.to_json()
    about = {key: result[key] for key in ("parameters", "rmse", "snr_db", "zero_share")}
    changed = [tensor for tensor in quantized.tensors if tensor.quantized]
    if streams is None:
        n_bytes = sum(tensor.n_bytes for tensor in changed)
    else:
        n_bytes = coded_bytes(streams, {tensor.type for tensor in changed})
    bits = 8 * n_bytes / sum(tensor.n_weights for tensor in changed) if changed else None
    return about | size_of(file, streams) | {"quantized_bits": bits}


def coded_bytes(streams: Collection[StreamUse], types: Collection[str]) -> int:
    """Of all tensors of these types in a packed file."""
    return sum(stream.coded_bytes for stream in streams if stream.type in types)


def size_of(file: Path, streams: Collection[StreamUse] | None = None) -> dict[str, Any]:
    """A model file's size: all its bytes, and bits per weight of its tensors and of all of it.

    streams: of a packed file.
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
        "bits_per_weight": 8 * n_bytes / model.n_weights,
        "file_bits": 8 * model.n_bytes / model.n_weights,
        "quantized_bits": None,
    }


def find_step(
    source: Path,
    mode: Mode,
    file: Path,
    text: Path | None,
    report: Callable[[float, str], None],
    *,
    threads: int | None = None,
    bpw: float | None = None,
    like: str | None = None,
    n_ctx: int = 512,
    n_chunks: int | None = None,
) -> Mode:
    """Mode uniform with the step that makes quantized tensors take `bpw` bits per weight, whatever the
    others take, or a model as good as the type `like` on a text. file: to be replaced. Raises ConfigError.
    """
    search = StepSearch(source, mode, threads=threads, tell=lambda line: report(0.0, line))
    if like is not None:
        assert text is not None
        return search.for_divergence_of(like, Evaluation(text, n_ctx, n_chunks))
    assert bpw is not None
    first = quantize_to_pqz(source, file, mode, threads=threads, force=True)
    changed = [tensor for tensor in first.quantized.tensors if tensor.quantized]
    rest = first.packed.output_bytes - coded_bytes(first.packed.streams, {t.type for t in changed})
    n_weights = sum(tensor.n_weights for tensor in changed)
    return search.for_size(int(rest + bpw * n_weights / 8), f"{bpw:g} bits per quantized weight")
