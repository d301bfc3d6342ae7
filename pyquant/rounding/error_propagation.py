"""Error propagation: rounding in the model's order, each matrix correcting the errors of those before it.

A matrix that is rounded on its own aims at what it did to the inputs of the model as it was. In the
quantized model it gets others, as all matrices before it have changed. So the model and a copy of it are
run over the same tokens together, the copy's matrices rounded one after the other as they are reached, and
each aims at giving, of the inputs that it will get, what the model's gives of its own (Zhang et al.,
*Qronos*, 2025; Li et al., *GPTAQ*, 2025).

Tokens come in pieces. Both passes bring all pieces to a matrix before any goes on with it
(csrc/calibrate/staged_pass.h). What is kept of a piece meanwhile is what is in use there, in memory or on
disk. On a GPU they go on while the CPU sums up a piece. Rounding waits for the sums, and the copy's pass for
what is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.calibration import Calibration
from pyquant.calibration.collected import OfAllTokens
from pyquant.calibration.products import portions
from pyquant.calibration.soundness import SoundTokens
from pyquant.errors import ConfigError, ModelFileError, Tell
from pyquant.llama.model import Model
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_name import EMBEDDINGS
from pyquant.rounding.beside import Beside
from pyquant.rounding.collecting import Write, sums_of, tokens_of
from pyquant.rounding.corrected_target import CorrectedTarget
from pyquant.rounding.correction import ENOUGH, Correction, ExpertCorrections
from pyquant.rounding.spent import Spent
from pyquant.rounding.staged_context import StagedContext, pieces_of
from pyquant.rounding.staged_memory import StagedMemory
from pyquant.rounding.tensor_writer import ToWrite
from pyquant.schemes.dampening import CORRECTION, STREAM

# Gives what an expert's matrix, or that of all tokens, has to change by; None: it stays.
Change = Callable[[int], NDArray[np.float32] | None]


def write_propagated(
    model: ModelFile,
    calibration: Calibration,
    tensors: Iterable[Tensor],
    n_chunks: int,
    write: Write,
    *,
    folder: Path,
    done: Collection[str] = (),
    threads: int | None = None,
    memory: int | None = None,
    tell: Tell | None = None,
) -> None:
    """Run the model over tokens that the calibration kept, and write its matrices as they are reached.

    Parameters
    ----------
    tensors
        The matrices to write.
    n_chunks
        How many chunks of the kept tokens are used.
    write
        Writes matrices that the model comes to, which share an input; experts' together, else one each time.
    folder
        Where what does not fit into `memory` is kept, in a file without a name.
    done
        Names of matrices that are written already: `write` gets no weights for those, and fills their copies.
        Both passes begin behind them.
    memory
        Bytes that what is kept of pieces may take in memory; None: 512 MiB. The result is the same.
    tell
        Told how much memory and disk it takes, before it begins, and then how long its parts took.

    Raises
    ------
    ConfigError
        There are too few tokens.
    NotEnoughMemory
        There is too little.
    ModelFileError
        The model cannot be run.
    OutputError
        There is no room in `folder`.
    """
    by_name = {tensor.name: tensor for tensor in tensors}
    with Model(model, staged=True) as as_it_is:
        tokens, texts = tokens_of(calibration, as_it_is, n_chunks)
        _check_tokens(tokens, by_name.values(), calibration.called, tell)
        pieces = pieces_of(tokens)
        with StagedContext(as_it_is, by_name, pieces, threads) as original:
            needed = StagedMemory.of(model, original, memory, n_passes=2, doing="error propagation")
            needed.check(folder)
            if tell:
                tell(needed.describe())
            spent = Spent()
            with (
                Model(model, as_stored=True, staged=True) as copy,
                StagedContext(copy, by_name, pieces, threads) as changed,
                needed.states_in(folder) as states,
                Beside("sums", spent, in_thread=copy.on_gpu) as summing,
            ):
                _run_together(
                    original, changed, states, by_name, calibration, texts, write, done, threads, needed,
                    folder, spent, summing, SoundTokens(tell),
                )  # fmt: skip
            if tell:
                tell(f"{needed.doing} took {spent.describe()}")


def _check_tokens(
    tokens: NDArray[np.int32],
    tensors: Collection[Tensor],
    called: Path,
    tell: Tell | None,
) -> None:
    """Say or refuse that tokens are too few; `_run_together` leaves out the corrections that they are for."""
    short = [tensor for tensor in tensors if tokens.size < ENOUGH * tensor.n_per_row]
    if not short:
        return
    widest = max(short, key=lambda tensor: tensor.n_per_row)
    chunks = f"{len(tokens)} chunks of {tokens.shape[1]} tokens of {called} are too few"
    if len(short) == len(tensors):
        raise ConfigError(
            f"error_propagation: {chunks}: {widest.name}, with rows of {widest.n_per_row:,}, needs "
            f"{ENOUGH * widest.n_per_row:,} tokens"
        )
    if tell:
        needed = -(-ENOUGH * widest.n_per_row // tokens.shape[1])
        tell(
            f"{chunks} for {len(short)} of {len(tensors)} matrices, with rows of up to {widest.n_per_row:,}: "
            f"these are rounded by GPTQ alone; {needed} chunks would do for all"
        )


def _run_together(
    original: StagedContext,
    changed: StagedContext,
    states: _core.PassStates,
    tensors: dict[str, Tensor],
    calibration: Calibration,
    texts: NDArray[np.int32],
    write: Write,
    done: Collection[str],
    threads: int | None,
    needed: StagedMemory,
    folder: Path,
    spent: Spent,
    summing: Beside,
    sound: SoundTokens,
) -> None:
    left: int | None = None  # the stage that all pieces were left at
    unfinished = [not set(stage.matrices) <= set(done) for stage in changed.stages]
    for number, stage in enumerate(changed.stages):
        if original.stages[number].matrices != stage.matrices:
            raise ModelFileError(f"{original.path}: its graph is not the same in both passes")
        first = tensors[stage.matrices[0]]
        change: Change = _none
        enough = changed.n_tokens(number) >= ENOUGH * stage.n_in
        corrects = unfinished[number] and EMBEDDINGS not in stage.matrices and enough
        collects = unfinished[number] and calibration.is_collected_later
        # A run that goes on passes finished layers one by one too: it holds no more weights than a whole one.
        passes_by = not unfinished[number] and stage.resumes and any(unfinished[number:])
        if corrects or collects or passes_by:
            calibration.drop()
            before, after = (needed.tokens_of(running, number, folder) for running in (original, changed))
            held = sums_of(stage, original.n_ctx, texts, before, threads) if collects else None
            stream = CorrectedTarget(first.weights(), threads) if corrects and stage.in_stream else None
            sums = Correction(stage.n_in, threads) if corrects and not stream and not stage.routed else None
            for piece in range(changed.n_pieces):
                with spent.on("the model's passes"):
                    x = original.run(piece, left, number, states, 2 * piece)
                with spent.on("the copy's passes"):
                    y = changed.run(piece, left, number, states, 2 * piece + 1)
                if x is None or y is None:
                    continue
                streams = (original.stream(), changed.stream()) if stream else ()
                x, y, *behind = sound.of(first.name, x, y, *(each for each in streams if each is not None))
                adds: list[Callable[[], None]] = []
                if stage.routed and unfinished[number]:
                    adds += [
                        partial(before.add, x, original.experts()),
                        partial(after.add, y, changed.experts()),
                    ]
                elif isinstance(held, OfAllTokens):
                    adds.append(partial(held.add, x))
                if stream and len(behind) == len(streams):
                    adds.append(partial(stream.add, x, y, *behind))
                if sums:
                    adds.append(partial(sums.add, x, y))
                summing.start(*adds)
            summing.wait()
            left = number if stage.resumes else left
            if left is not None:
                changed.disown_before(left)
            if held:
                calibration.hold(stage.matrices[0], held)
            if corrects:
                with spent.on("corrections"):
                    change = _change(stream, sums, ExpertCorrections(before, after, threads))
        n_experts = first.n_rows // first.shape[1] if stage.routed else 1
        numbered = list(enumerate(stage.matrices))
        for together in [numbered] if stage.routed else [[each] for each in numbered]:
            with spent.on("corrections"):
                at_work = [tensors[name] for _, name in together]
                corrected = _corrected(at_work, n_experts, change, stage.in_stream)
            wanted = [
                # Embeddings that are the output matrix too stay in the copy as they are looked up.
                ToWrite(
                    tensors[name], corrected.get(name), None if name == EMBEDDINGS else changed.own(number, i)
                )
                for i, name in together
            ]
            with spent.on("rounding"):
                write(wanted)


def _none(expert: int) -> None:
    return None


def _change(stream: CorrectedTarget | None, sums: Correction | None, routed: ExpertCorrections) -> Change:
    if stream or sums:
        of_all = stream.result(STREAM) if stream else sums.result(CORRECTION) if sums else None
        return lambda expert: of_all
    return lambda expert: routed.result(expert, CORRECTION)


def _corrected(
    tensors: Sequence[Tensor], n_experts: int, change: Change, in_stream: bool
) -> dict[str, NDArray[np.float32]]:
    """Weights by name, of tensors that change; in_stream: changes are to be added."""
    weights: dict[str, NDArray[np.float32]] = {}
    for expert in range(n_experts):
        of_expert = change(expert)
        if of_expert is None:
            continue
        if not np.isfinite(of_expert).all():
            path, name = tensors[0].path, tensors[0].name
            raise ModelFileError(f"{path}: what enters {name} is not finite, or too large")
        for tensor in tensors:
            if tensor.name not in weights:
                weights[tensor.name] = tensor.weights()
            rows = np.split(weights[tensor.name], n_experts)[expert]
            for part in portions(len(rows)):  # an output matrix and its change are not held together
                rows[part] += of_expert[part] if in_stream else rows[part] @ of_expert
    return weights
