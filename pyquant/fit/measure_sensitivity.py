"""Measure how much KLD an error in the outputs of each tensor causes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant import _core, limits
from pyquant.calibration.calibration import AnyCalibration, Calibration, open_calibration
from pyquant.calibration.sensitivity_file import OfTensor, Sensitivity
from pyquant.errors import ConfigError, ModelFileError, Tell
from pyquant.files.journal import Journal
from pyquant.files.json import parse_json
from pyquant.files.text import AnyText, read_texts
from pyquant.fit.contributions import LEAST_KLD
from pyquant.fit.kept_prefixes import KeptPrefixes
from pyquant.fit.shrink import shrink
from pyquant.llama.chunks import Chunks, cut
from pyquant.llama.model import Model
from pyquant.llama.running_weights import RunningWeights
from pyquant.machine.cpu import n_threads
from pyquant.machine.environment import build_and_cpu
from pyquant.machine.memory import require_memory
from pyquant.models.model_file import AnyModel, ModelFile, open_model
from pyquant.models.tensor import UNQUANTIZED, Tensor
from pyquant.models.tensor_name import kind_of
from pyquant.models.tensor_reader import weight_errors
from pyquant.models.type_policy import quantizable
from pyquant.rounding.factors import Factors, matrices
from pyquant.rounding.row_weights import TOGETHER, RowWeights
from pyquant.schemes.dampening import ON_ITS_OWN
from pyquant.schemes.ecsq import ecsq

NOISE = 0.01  # the error that a tensor is given, as a share of its outputs' power: 20 dB

# (tensors done, all tensors)
Progress = Callable[[int, int], None]


def measure_sensitivity(
    model: AnyModel,
    hessian: AnyCalibration,
    text: AnyText | Sequence[AnyText],
    *,
    n_ctx: int = limits.SENSITIVITY_CTX,
    n_chunks: int | None = limits.SENSITIVITY_CHUNKS,
    threads: int | None = None,
    checkpoint: Path | None = None,
    progress: Progress | None = None,
    tell: Tell | None = None,
) -> Sensitivity:
    """Round one tensor after the other while the model runs, and compare it with what it was.

    Every tensor's step is such that its outputs err by a hundredth of their power, as at about 4 bits. The
    KLD that this causes, divided by the error, is the tensor's sensitivity; of several texts it is the
    mean, however long they are. Chunks of all texts say how certain it is: what of it changes from chunk to
    chunk otherwise than that of other tensors. By that it is drawn
    towards its kind's sensitivities in the layers around it. Their mean by weights in logarithms is 1. A
    tensor that gives nothing but zeros has none.

    What is computed before a tensor is kept (`KeptPrefixes`). The folder for temporary files needs room for
    the logits of all scored tokens, and for what is kept, where either takes more than 64 MiB.

    Parameters
    ----------
    model
        A path or a ModelFile, unquantized.
    hessian
        What `calibrate_model` wrote for it.
    text
        A text, or the path of one; or several.
    n_ctx, n_chunks
        Tokens of a chunk, and how many chunks of each text each tensor is tried on; None: all.
    threads
        None: all cores.
    checkpoint
        A file that lists what is measured: the same call goes on behind it, and the caller removes it.
        None: nothing is kept.
    progress
        Called with tensors done and all tensors.
    tell
        Told of a `checkpoint` that is not used.

    Raises
    ------
    ConfigError
        The calibration knows the input of no matrix of the model.
    ModelFileError
        The calibration is of another model, or a weight is not finite.
    OutputError
        `checkpoint` cannot be written.
    PyquantError
        What `KeptPrefixes` raises.
    """
    source, known = open_model(model), open_calibration(hessian)
    known.check_model(source, source.sha256())
    texts = read_texts(text)
    with Model(source, changing=True) as running:
        running_weights = RunningWeights(running)
        rounded = quantizable(source) & running_weights.names
        tensors = [tensor for tensor in source.tensors if tensor.name in rounded and _may_be_rounded(tensor)]
        if not any(tensor.name in known.matrices for tensor in tensors):
            raise ConfigError(
                f"{known.path}: knows the input of no matrix of {source.path}; calibrate this model"
            )
        parts = [cut(running, of, n_ctx=n_ctx, n_chunks=n_chunks).tokens for of in texts]
        chunks = Chunks(np.concatenate(parts))
        lengths = np.array([len(part) for part in parts])
        # Of each chunk, in a mean where texts count alike.
        shares = np.repeat(1 / (len(parts) * lengths), lengths)
        per_error = np.full((len(tensors), chunks.n_chunks), np.nan)  # of those that give nothing
        rows = {tensor.name: i for i, tensor in enumerate(tensors)}
        kept = _kept(checkpoint, source, known, chunks, rows, tell) if checkpoint else None
        before = dict(kept.entries) if kept else {}
        with ExitStack() as stack:
            runs = stack.enter_context(KeptPrefixes(running, rows, chunks, threads))
            measured = [tensors[rows[name]] for name in runs.in_order(rows)]
            left = [tensor for tensor in measured if tensor.name not in before]
            wanted = [matrix for tensor in left for matrix in matrices(tensor, TOGETHER)]
            factors = stack.enter_context(Factors(known, ON_ITS_OWN, wanted, threads))
            # Outputs' power is the first product in numpy, before factors and rows' weights ask for room.
            what = f"products with Hessian statistics of {known.path}"
            require_memory(0, what, blas=1 + n_threads(threads))
            for done, tensor in enumerate(measured):
                name = tensor.name
                if name in before:
                    per_error[rows[name]] = before[name]
                    continue
                runs.go_to(name)
                with running_weights.copied(name) as copy:
                    if step := _round(source, tensor, known, factors, copy):
                        caused = runs.kld_by_chunk()
                        per_error[rows[name]] = np.maximum(caused, LEAST_KLD) / (tensor.n_weights * step**2)
                if kept and step:
                    kept.add(json.dumps([name, per_error[rows[name]].tolist()]))
                if progress:
                    progress(done + 1, len(tensors))
    gives = [tensor for tensor in tensors if np.isfinite(per_error[rows[tensor.name]]).all()]
    if not gives:
        raise ModelFileError(f"{source.path}: all of its matrices give nothing but zeros")
    return _summed_up(gives, per_error[[rows[tensor.name] for tensor in gives]], shares)


def _kept(
    path: Path,
    model: ModelFile,
    known: Calibration,
    chunks: Chunks,
    names: Collection[str],
    tell: Tell | None,
) -> Journal[tuple[str, list[float]]]:
    """Open what was measured of some of these tensors: KLDs by chunk, for their errors."""

    def read(line: str) -> tuple[str, list[float]] | None:
        try:
            name, klds = parse_json(line)
            sound = name in names and len(klds) == chunks.n_chunks
            sound = sound and all(isinstance(kld, float) and 0 < kld < math.inf for kld in klds)
        except (ValueError, TypeError):
            return None
        return (name, klds) if sound else None

    made_of = [known.digest, model.sha256().encode(), chunks.tokens.tobytes(), build_and_cpu().encode()]
    return Journal(path, made_of, read, tell)


def _may_be_rounded(tensor: Tensor) -> bool:
    return tensor.type in UNQUANTIZED and len(tensor.shape) > 1 and tensor.n_per_row % TOGETHER[2] == 0


def _round(
    model: ModelFile, tensor: Tensor, known: Calibration, factors: Factors, to: NDArray[np.uint8]
) -> float:
    """Write a rounded tensor in the type that it has, and give the step of mode ecsq.

    It is 0, and nothing is written, where the tensor gives nothing but zeros.
    """
    weights = tensor.weights()
    step = math.sqrt(12 * NOISE * output_power(tensor, weights, known) / tensor.n_weights)
    if not step:
        return 0.0
    scheme, stored = ecsq(step, Sensitivity()), _core.ggml_encoder(int(tensor.type))
    row_weights = RowWeights(model, known)
    rows = tensor.shape[1]
    with weight_errors(model, tensor):
        for matrix in matrices(tensor, TOGETHER):
            part = slice(matrix.expert * rows, (matrix.expert + 1) * rows)
            encoder = scheme.searched(tensor.name, factors.of(matrix), row_weights.of(matrix))
            noisy = encoder.decode(encoder.encode(weights[part]), n_per_row=tensor.n_per_row)
            to[part] = stored.encode(noisy)
    return step


def output_power(tensor: Tensor, weights: NDArray[np.float32], known: Calibration) -> float:
    """Compute the mean squared length of what a tensor gives, summed over its experts by their loads.

    Of a tensor whose input is not known, it is its squared length; 0 for one that gives nothing but zeros.
    """
    rows, power, diagonals = tensor.shape[1], 0.0, None
    if tensor.name in known.matrices:
        diagonals = known.diagonal(tensor.name).reshape(-1, tensor.n_per_row)
    for expert, load in enumerate(known.loads(tensor)):
        if not load:
            continue
        part = weights[expert * rows : (expert + 1) * rows]
        hessian = known.hessian(tensor.name, expert) if tensor.name in known.matrices else None
        if hessian is None:
            given = part if diagonals is None else part * diagonals[expert]
        else:
            given = part @ hessian
        power += load * float(np.vdot(given, part))
    return power


def _summed_up(
    tensors: list[Tensor], per_error: NDArray[np.float64], shares: NDArray[np.float64]
) -> Sensitivity:
    """Make sensitivities of KLDs by tensor and chunk; shares: of each chunk in the mean."""
    n_chunks = per_error.shape[1]
    measured = np.log(per_error @ shares)
    if n_chunks > 1:
        by_chunk = np.log(per_error)
        own = by_chunk - by_chunk.mean(axis=0)  # less what a chunk does to all tensors
        apart = np.square(own - (own @ shares)[:, None])  # also what texts have apart: they are a sample too
        variance = apart @ np.square(shares) * n_chunks / (n_chunks - 1)
    else:
        variance = np.zeros(len(tensors))
    kinds = np.array([kind_of(tensor.name) for tensor in tensors])
    layers = np.array([float(tensor.layer) for tensor in tensors])
    drawn = measured.copy()
    for kind in set(kinds):
        of_kind = kinds == kind
        variance[of_kind] = variance[of_kind].mean()  # a few chunks tell too little of a single tensor's
        drawn[of_kind] = shrink(measured[of_kind], variance[of_kind], layers[of_kind])
    weights = np.array([tensor.n_weights for tensor in tensors], np.float64)
    level = float(np.average(drawn, weights=weights))
    return Sensitivity(
        by_tensor={
            tensor.name: OfTensor(math.exp(d - level), math.exp(m - level), math.sqrt(v))
            for tensor, d, m, v in zip(tensors, drawn, measured, variance)
        }
    )
