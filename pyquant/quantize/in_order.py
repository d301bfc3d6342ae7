"""Rounding in the order in which the model computes, so that each matrix makes up for those before it.

A matrix that is rounded on its own aims at what it did to the inputs of the model as it was. In the
quantized model it gets others, as all matrices before it have changed. So the model and a copy of it are
run over the same tokens together (csrc/calibrate/lockstep.h), the copy's matrices rounded one after the
other as they are reached, and each aims at giving, of the inputs that it will get, what the model's gives
of its own (Zhang et al., *Qronos*, 2025; Li et al., *GPTAQ*, 2025).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.calibration import Calibration
from pyquant.errors import ConfigError, ModelFileError
from pyquant.llama.interrupt import Interrupt
from pyquant.llama.model import Context, Model
from pyquant.machine import available_memory
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.schemes.damping import CORRECTION

ENOUGH = 8  # tokens for each column of a matrix; fewer do more harm by chance than good
PORTION = 4096  # tokens whose moments are summed up together
LOGITS_BYTES = 1 << 29  # that llama.cpp may keep, which nobody reads

# Writes a matrix, of its own weights or of these, (n_rows, n_in) float32; puts the values that it then has
# into the running copy: (n_rows, row_bytes) uint8, of the tensor's type.
Write = Callable[[Tensor, NDArray[np.float32] | None, NDArray[np.uint8]], None]


def write_in_order(
    model: ModelFile,
    calibration: Calibration,
    tensors: Iterable[Tensor],
    n_chunks: int,
    write: Write,
    *,
    threads: int | None = None,
) -> None:
    """Runs the model over n_chunks of the tokens that the calibration kept and calls `write` once for
    each of the tensors that it comes to, in its order.

    Raises ConfigError, ModelFileError, and what `write` does.
    """
    by_name = {tensor.name: tensor for tensor in tensors}
    tokens = calibration.tokens(n_chunks)
    widest = max(by_name.values(), key=lambda tensor: tensor.n_per_row, default=None)
    if widest and tokens.size < ENOUGH * widest.n_per_row:
        raise ConfigError(
            f"sequential: {len(tokens)} chunks of {tokens.shape[1]} tokens of {calibration.path} are too few"
            f": {widest.name}, with rows of {widest.n_per_row:,}, needs {ENOUGH * widest.n_per_row:,} tokens"
        )
    aim = _Aim(calibration)

    def round_matrix(
        name: str,
        original: NDArray[np.float32] | None,
        changed: NDArray[np.float32] | None,
        copy: NDArray[np.uint8],
    ) -> None:
        tensor = by_name[name]
        corrected = None
        if original is not None and changed is not None and len(original) >= ENOUGH * tensor.n_per_row:
            corrected = aim.weights(tensor, original, changed)
        write(tensor, corrected, copy)

    steps = _core.Lockstep(set(by_name), round_matrix)
    with Model(model.path) as as_it_is:
        _check_memory(as_it_is, model.n_bytes, by_name.values(), tokens)
        if (bos := as_it_is.vocabulary.bos) is not None:
            tokens[:, 0] = bos
        with (
            Model(model.path, writable=True) as copy,
            _context(as_it_is, tokens, threads, steps.original) as original,
            _context(copy, tokens, threads, steps.changed) as changed,
        ):
            _run_together(original, changed, steps, tokens)


def _check_memory(model: Model, n_bytes: int, tensors: Iterable[Tensor], tokens: NDArray[np.int32]) -> None:
    # A system that gives more memory than it has would kill the process, and without a word.
    widths = [tensor.n_per_row for tensor in tensors]
    activations = 4 * tokens.size * (4 * max(widths, default=0) + 6 * min(widths, default=0))
    logits = min(LOGITS_BYTES, 4 * tokens.size * model.n_vocab)
    needed, free = n_bytes + 2 * (activations + logits), available_memory()
    if free is not None and needed > free:
        raise ConfigError(
            f"sequential: {len(tokens)} chunks of {tokens.shape[1]} tokens need about {needed / 1e9:.2g} GB "
            f"of memory, {free / 1e9:.2g} GB are free; give fewer chunks"
        )


class _Aim:
    """What matrices are to become; keeps what those with the same input share."""

    def __init__(self, calibration: Calibration) -> None:
        self._calibration = calibration
        self._input = ""
        self._correction = np.empty((0, 0), np.float32)

    def weights(
        self, tensor: Tensor, original: NDArray[np.float32], changed: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Raises ModelFileError if what enters it is not finite."""
        if (shared := self._calibration.input_of(tensor.name)) != self._input:
            self._input, self._correction = shared, correction(original, changed, CORRECTION)
        if not np.isfinite(self._correction).all():
            raise ModelFileError(f"{tensor.path}: what enters {tensor.name} is not finite, or too large")
        weights = tensor.weights()
        corrected = weights @ self._correction
        corrected += weights
        return corrected


def correction(
    original: NDArray[np.float32], changed: NDArray[np.float32], damping: float
) -> NDArray[np.float32]:
    """What a matrix W has to change by, as W @ result, to give of changed inputs what it gave of the
    original ones, in the least squares over all tokens.

    original, changed: (n_tokens, n_in). Returns (n_in, n_in): with d = original - changed,
    E[d changed^T] (E[changed changed^T] + damping * mean diagonal * I)^-1.
    """
    n_in = original.shape[1]
    moments, moved = np.zeros((2, n_in, n_in), np.float32)
    for begin in range(0, len(original), PORTION):
        part = changed[begin : begin + PORTION]
        moments += part.T @ part
        moved += (original[begin : begin + PORTION] - part).T @ part
    damped = moments.astype(np.float64)
    damped[np.diag_indices(n_in)] += damping * damped.trace() / n_in if damped.any() else 1
    return np.linalg.solve(damped, moved.T).T.astype(np.float32)


def _context(
    model: Model, tokens: NDArray[np.int32], threads: int | None, side: _core.LockstepPass
) -> Context:
    n_chunks, n_ctx = tokens.shape
    return model.context(
        n_ctx=n_ctx, n_seq=n_chunks, n_batch=tokens.size, n_ubatch=tokens.size, threads=threads, observer=side
    )  # fmt: skip


def _run_together(
    original: Context, changed: Context, steps: _core.Lockstep, tokens: NDArray[np.int32]
) -> None:
    failures: list[BaseException] = []
    # The last layer's feed-forward matrices meet only tokens whose logits are wanted.
    step = -(-4 * tokens.size * original.model.n_vocab // LOGITS_BYTES)
    wanted = np.arange(tokens.shape[1]) % step == 0

    def run(context: Context, side: _core.LockstepPass) -> None:
        try:
            context.decode(tokens, 0, wanted)
        except BaseException as failure:
            failures.append(failure)
        finally:
            side.leave()

    thread = threading.Thread(target=run, args=(original, steps.original))
    with Interrupt().held():  # Ctrl-C ends the passes, and must not end the waiting for them
        thread.start()
        run(changed, steps.changed)  # here, where it is heard
        thread.join()
    steps.rethrow()
    if failures:
        raise failures[0]
