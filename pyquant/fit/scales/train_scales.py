"""Train the scales of a quantized model: the file keeps its codes, types and size."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant.calibration.calibrate import CHECKPOINT_SECONDS
from pyquant.calibration.gradients.kept_sums import KeptSums
from pyquant.calibration.gradients.llama_graph import MATRICES
from pyquant.calibration.gradients.output_hessians import OtherGraph, Progress, why_other
from pyquant.fit.scales.training import train
from pyquant.fit.scales.write import write_scaled
from pyquant.llama.chunks import Chunks
from pyquant.llama.model import Model
from pyquant.models.block_scales import has_scales
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_name import kind_of


def train_scales(
    base: ModelFile,
    quantized: ModelFile,
    output: Path,
    tokens: NDArray[np.int32],
    *,
    threads: int | None = None,
    force: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    progress: Progress | None = None,
) -> list[Path]:
    """Write a quantized model with rows' scales and norms that are trained on its KLD from the base.

    A call that is killed leaves its factors beside `output`, and the same call takes them up again.

    Parameters
    ----------
    base, quantized
        The model, and what was made of it: of a family whose gradients are known.
    output
        The GGUF to write, or the name that its shards have more of: as many as `quantized` has.
    tokens
        (n_chunks, n_ctx) int32, as the model is given them.
    progress
        Called with chunks done and all chunks.

    Returns
    -------
    The files.

    Raises
    ------
    ConfigError
        The gradients of such a model are not known.
    ModelFileError, OutputError
    """
    with Model(base) as running:
        if why := why_other(running, Chunks(tokens[:1]), threads):
            raise OtherGraph(why)
    scaled = [tensor.name for tensor in quantized.tensors if _is_scaled(tensor)]
    both = hashlib.sha256((base.sha256() + quantized.sha256()).encode()).hexdigest()
    kept = KeptSums(output, both, Chunks(tokens), checkpoint_seconds, scaled, called="scales")
    with kept.keeping():
        factors = train(base, quantized, scaled, tokens, kept, threads=threads, progress=progress)
        return write_scaled(quantized, output, factors, threads=threads, force=force)


def _is_scaled(tensor: Tensor) -> bool:
    kind = kind_of(tensor.name)
    is_matrix = tensor.layer >= 0 and kind in MATRICES and tensor.name.endswith(".weight")
    return has_scales(tensor) and (is_matrix or (kind.endswith("_norm") and len(tensor.shape) == 1))
