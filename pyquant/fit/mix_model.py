"""Mix a model's types in one call: measure what is not given, then search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Literal

from pyquant.calibration.calibration import AnyCalibration, Calibration, open_calibration
from pyquant.calibration.sensitivity_file import Sensitivity
from pyquant.errors import ConfigError, Tell, TextError
from pyquant.evaluate.baseline import Baseline
from pyquant.files.temporary import temporary_folder
from pyquant.files.text import AnyText, Text, read_texts
from pyquant.fit.measure_sensitivity import measure_sensitivity
from pyquant.fit.mix import Mixer, Progress
from pyquant.fit.mix_result import Mix
from pyquant.fit.mixtures import WantedSize
from pyquant.llama.chunks import Chunks, cut
from pyquant.llama.model import Model
from pyquant.models.model_file import AnyModel, ModelFile, open_model
from pyquant.models.tensor_name import EMBEDDINGS, OUTPUT
from pyquant.models.tensor_type import TensorType as Type
from pyquant.rounding.equalize.equalize_model import equalized_files
from pyquant.rounding.factors import matrices
from pyquant.rounding.row_weights import TOGETHER, RowWeights
from pyquant.rounding.shards import Split

CTX = 128  # tokens of a chunk that sensitivities are measured on
LEAST_CHUNKS, MOST_CHUNKS = 2, 16


def mix_model(
    model: AnyModel,
    hessian: AnyCalibration,
    text: AnyText | Sequence[AnyText],
    target: WantedSize,
    *,
    sensitivity: Sensitivity | Literal["guess"] | None = None,
    allowed: Sequence[Type] | None = None,
    equalize: bool = False,
    output_side: bool = True,
    split: Split | None = None,
    n_ctx: int = 512,
    n_chunks: int = 8,
    threads: int | None = None,
    checkpoint: Path | None = None,
    progress: Progress = lambda what, done, total: None,
    tell: Tell | None = None,
) -> Mix:
    """Find the types of the least KLD from a model in a file of some size.

    The matrices of one kind are held in memory, rounded, beside the mapped model. The folder for temporary
    files needs room for three quantized files, and for the logits of all scored tokens where these take more
    than 64 MiB.

    Parameters
    ----------
    model, hessian
        The model, unquantized, and what `calibrate_model` wrote for it.
    text
        The text that KLD and sensitivities are measured on, or its path; or several: they count
        alike.
    target
        The size.
    sensitivity
        What `measure_sensitivity` gave; "guess": from the residual stream, without runs. None: from the
        calibration's gradients; without these it is measured, over about as many tokens as the model was
        calibrated with.
    allowed
        Types that may be used; None: all that GPTQ rounds to.
    equalize
        Find types for the model as `equalize_model` writes it. The recipe is the model's own, for a mode that
        equalizes too.
    output_side
        Find types for files that are rounded with output-side Hessians, where the calibration has them.
    split
        How the file will be divided, as for `quantize_model`.
    n_ctx, n_chunks
        Tokens of a chunk, and how many chunks of each text KLD is measured on.
    threads
        None: all cores.
    checkpoint
        A file that lists measured sensitivities, as for `measure_sensitivity`.
    progress
        Called with what is done, and its steps done and all.
    tell
        Told of a `checkpoint` that is not used.

    Raises
    ------
    ConfigError
        The size is not reachable, or an allowed type fits no tensor.
    TextError
        A text has fewer chunks.
    ModelFileError
        The calibration is of another model, or has no Hessian statistics.
    PyquantError
        What quantizing and measuring raise.
    """
    source, known, texts = open_model(model), open_calibration(hessian), read_texts(text)
    known.check_model(source, source.sha256())
    if not any(known.has_hessian(name) for name in known.matrices):
        name = known.matrices[0]
        raise ConfigError(
            f"{known.path}: has no Hessian statistics to round by: {name}: {known.why_no_hessian(name)}"
        )
    with Model(source) as running:
        for read in texts:
            _check_length(read, cut(running, read, n_ctx=n_ctx, n_chunks=n_chunks), n_chunks)
    with ExitStack() as stack:
        if equalize:
            source, stats = stack.enter_context(equalized_files(source, known.path, threads))
            known = Calibration.read(stats)
        mixer = Mixer(
            source, known, target, stack.enter_context(temporary_folder()), allowed=allowed,
            output_side=output_side, split=split, threads=threads, progress=progress,
        )  # fmt: skip
        baseline = stack.enter_context(
            Baseline(
                source, texts, n_ctx=n_ctx, n_chunks=n_chunks, threads=threads,
                progress=partial(progress, "the base"),
            )
        )  # fmt: skip
        if sensitivity is None and (found := by_gradients(source, known)):
            return mixer.find(baseline, found.get, corrects=False)
        with mixer.timed("sensitivities") as advance:
            known_of = _sensitivities(source, known, texts, sensitivity, threads, checkpoint, advance, tell)
        return mixer.find(baseline, known_of)


def sensitivity_chunks(n_tokens: int, n_tensors: int) -> int:
    """Say on how many chunks sensitivities are measured of a model that was calibrated on n_tokens."""
    return min(max(n_tokens // (CTX * max(n_tensors, 1)), LEAST_CHUNKS), MOST_CHUNKS)


def by_gradients(model: ModelFile, calibration: Calibration) -> dict[str, float]:
    """Give by tensor the nats that a squared error in what it gives causes, to second order.

    The Fisher information of outputs is E[g g^T]: an error e of a row costs E[(g e x)^2] / 2. Each token
    looks up one row of the embeddings. Empty where gradients or a matrix's input are unknown.
    """
    found = {name: square / 2 for name, square in calibration.gradients.items()}
    looked_up = {EMBEDDINGS} if OUTPUT in found else set()
    for name in looked_up:
        found[name] /= next(tensor.n_rows for tensor in model.tensors if tensor.name == name)
    return found if found.keys() - looked_up <= set(calibration.matrices) else {}


def _check_length(text: Text, there: Chunks, n_chunks: int) -> None:
    if there.n_chunks < n_chunks:
        raise TextError(
            f"{text.path}: too short: {there.n_chunks} chunks of {there.n_ctx} tokens, and KLD is "
            f"measured on {n_chunks}; give more text, or ask for fewer, which is less certain"
        )


def _sensitivities(
    model: ModelFile,
    calibration: Calibration,
    texts: list[Text],
    given: Sensitivity | Literal["guess"] | None,
    threads: int | None,
    checkpoint: Path | None,
    progress: Callable[[int, int], None],
    tell: Tell | None,
) -> Callable[[str], float | None]:
    """Give what tells a tensor's sensitivity, by its name; None: unknown."""
    if isinstance(given, Sensitivity):
        return given.of
    if given is None:
        n_tensors = sum(len(tensor.shape) > 1 for tensor in model.tensors)
        n_chunks = -(-sensitivity_chunks(calibration.n_tokens, n_tensors) // len(texts))  # of each
        return measure_sensitivity(
            model, calibration, texts, n_ctx=CTX, n_chunks=n_chunks, threads=threads, checkpoint=checkpoint,
            progress=progress, tell=tell,
        ).of  # fmt: skip
    if not calibration.has_streams:
        raise ConfigError(
            f"{calibration.path}: says nothing of the residual stream to guess by; calibrate anew"
        )
    rows = RowWeights(model, calibration)
    tensors = {tensor.name: tensor for tensor in model.tensors}

    def guess(name: str) -> float | None:
        return rows.whole(next(matrices(tensors[name], TOGETHER))) if name in calibration.matrices else None

    guesses = {name: guess(name) for name in tensors}
    return guesses.get
