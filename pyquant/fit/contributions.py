"""Measure what each kind of tensor adds to the KLD of a quantized model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.fit.kept_prefixes import KeptPrefixes
from pyquant.fit.shrink import shrink
from pyquant.llama.chunks import Chunks
from pyquant.llama.model import Model
from pyquant.llama.running_weights import RunningWeights
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_name import kind_of

LEAST_KLD = 1e-9  # in nats: what no KLD counts as

# (kinds done, all kinds)
Progress = Callable[[int, int], None]


def measure_contributions(
    model: ModelFile,
    quantized: ModelFile,
    chunks: Chunks,
    threads: int | None,
    progress: Progress | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Quantize all tensors of one kind at a time while the model runs, and compare it with what it was.

    progress: called with kinds done and all kinds.
    Returns: by kind: (n_chunks,) the mean KLD per token of each chunk, in nats.
    """
    became = {tensor.name: tensor for tensor in quantized.tensors}
    caused = {}
    with (
        Model(model, changing=True) as running,
        KeptPrefixes(running, [], chunks, threads, allows_bf16=True) as runs,
    ):
        weights = RunningWeights(running)
        kinds: dict[str, list[Tensor]] = {}
        for tensor in model.tensors:
            if tensor.name in weights.names and became[tensor.name].type != tensor.type:
                kinds.setdefault(kind_of(tensor.name), []).append(tensor)
        for i, (kind, tensors) in enumerate(kinds.items()):
            with ExitStack() as stack:
                for tensor in tensors:
                    copy = stack.enter_context(weights.copied(tensor.name))
                    copy[:] = _core.ggml_encoder(int(tensor.type)).encode(became[tensor.name].weights())
                caused[kind] = runs.kld_by_chunk()
            if progress:
                progress(i + 1, len(kinds))
    return caused


def corrections(
    measured: Mapping[str, NDArray[np.float64]], predicted: Mapping[str, float]
) -> dict[str, float]:
    """Find by how much kinds of tensors add more than was predicted, as far as that is certain.

    Logarithms of measured over predicted are drawn towards their mean by their standard errors, which are of
    what changes from chunk to chunk otherwise than for other kinds (`shrink`).

    measured: by kind: (n_chunks,) KLDs, in nats.
    predicted: by kind, in any unit.
    Returns: by kind, a factor on what was predicted, in nats per unit.
    """
    kinds = [kind for kind in measured if predicted.get(kind, 0) > 0]
    if not kinds:
        return {}
    by_chunk = np.log(np.maximum([measured[kind] for kind in kinds], LEAST_KLD))
    means = [max(float(measured[kind].mean()), LEAST_KLD) for kind in kinds]
    factors = np.log(means) - np.log([predicted[kind] for kind in kinds])
    own = by_chunk - by_chunk.mean(axis=0)
    n_chunks = by_chunk.shape[1]
    variances = own.var(axis=1, ddof=1) / n_chunks if n_chunks > 1 else np.zeros(len(kinds))
    drawn = shrink(factors, variances, np.zeros(len(kinds)))
    return {kind: float(np.exp(factor)) for kind, factor in zip(kinds, drawn)}
