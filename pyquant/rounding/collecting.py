"""Rounding in the model's order with Hessians that are collected on the way, those of one stage at a time.

Hessians of all matrices of a model of 1.5 billion weights take 5 GB, and of 8 billion 16. So the model is run
over the tokens that the calibration kept; all pieces of these are brought to a stage, the Hessian of what
enters it is summed up, its matrices are rounded, and the sums are dropped before the next stage's begin.

On a GPU the pass goes on while the CPU sums up a piece and rounds a stage; sums of two stages are held.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.calibration import Calibration
from pyquant.calibration.collected import OfAllTokens, OfExperts
from pyquant.calibration.routed_tokens import RoutedTokens
from pyquant.calibration.soundness import SoundTokens
from pyquant.errors import Tell
from pyquant.llama.model import Model
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_name import MADE_BY_EXPERTS, kind_of
from pyquant.rounding.beside import Beside
from pyquant.rounding.spent import Spent
from pyquant.rounding.staged_context import StagedContext, pieces_of
from pyquant.rounding.staged_memory import StagedMemory
from pyquant.rounding.tensor_writer import ToWrite

Write = Callable[[Sequence[ToWrite]], None]


def write_collected(
    model: ModelFile,
    calibration: Calibration,
    tensors: Iterable[Tensor],
    write: Write,
    *,
    folder: Path,
    done: Collection[str] = (),
    threads: int | None = None,
    memory: int | None = None,
    tell: Tell | None = None,
) -> None:
    """Run the model over the calibration's tokens, and write its matrices as they are reached.

    Parameters
    ----------
    tensors
        The matrices to write. `write` gets those that share an input when the model comes to them.
    folder
        Where what does not fit into `memory` is kept, in a file without a name.
    done
        Names of matrices that are written already: the pass begins behind them.
    memory
        Bytes that what is kept of pieces may take in memory; None: 512 MiB. The result is the same.
    tell
        Told how much memory and disk it takes, before it begins, and then how long its parts took.

    Raises
    ------
    NotEnoughMemory
        There is too little.
    ModelFileError
        The model cannot be run.
    OutputError
        There is no room in `folder`.
    """
    by_name = {tensor.name: tensor for tensor in tensors}
    with Model(model, staged=True) as running:
        tokens, texts = tokens_of(calibration, running)
        with StagedContext(running, by_name, pieces_of(tokens), threads) as passing:
            needed = StagedMemory.of(
                model, passing, memory, n_passes=1, n_sums=1 + running.on_gpu, doing="collecting Hessians"
            )
            needed.check(folder)
            if tell:
                tell(needed.describe())
            spent, sound = Spent(), SoundTokens(tell)
            with (
                needed.states_in(folder) as states,
                Beside("sums", spent, in_thread=running.on_gpu) as summing,
                Beside("rounding", spent, in_thread=running.on_gpu) as rounding,
            ):
                left: int | None = None  # the stage that all pieces were left at
                for number, stage in enumerate(passing.stages):
                    if not set(stage.matrices) <= set(done):
                        if not running.on_gpu:
                            calibration.drop()
                        kept = needed.tokens_of(passing, number, folder)
                        sums = sums_of(stage, passing.n_ctx, texts, kept, threads)
                        for piece in range(passing.n_pieces):
                            with spent.on("passes"):
                                x = passing.run(piece, left, number, states, piece)
                            if x is not None:
                                (x,) = sound.of(stage.matrices[0], x)
                                summing.start(partial(sums.add, x, passing.experts()))
                        summing.wait()
                        left = number if stage.resumes else left
                        rounding.wait()
                        calibration.hold(stage.matrices[0], sums)
                    rounding.start(partial(write, [ToWrite(by_name[name]) for name in stage.matrices]))
            if tell:
                tell(f"{needed.doing} took {spent.describe()}")


def tokens_of(
    calibration: Calibration, model: Model, n_chunks: int | None = None
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Give tokens that a calibration kept, as the model is given them, and the text of each chunk.

    n_chunks: how many chunks; None: all. Returns: (n_chunks, n_ctx) and (n_chunks,).
    """
    tokens = calibration.kept.tokens(n_chunks)
    if (bos := model.vocabulary.bos) is not None:
        tokens[:, 0] = bos
    return tokens, calibration.kept.texts(n_chunks)


def sums_of(
    stage: _core.Stage, n_ctx: int, texts: NDArray[np.int32], tokens: RoutedTokens, threads: int | None
) -> OfAllTokens | OfExperts:
    """Make empty sums for what enters a stage.

    texts: of each chunk. tokens: where they are kept if they are sent to experts.
    """
    if stage.routed:
        alike = not kind_of(stage.matrices[0]).startswith(MADE_BY_EXPERTS)
        return OfExperts(tokens, n_ctx, alike, threads, texts)
    return OfAllTokens(stage.n_in, n_ctx, threads, texts)
