"""Quantize a model tensor by tensor, in bounded memory."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyquant.errors import ConfigError, Tell
from pyquant.files.output_file import check_output, partial_of
from pyquant.files.output_files import OutputFiles
from pyquant.files.sha256 import SourceHash
from pyquant.models.header import set_metadata
from pyquant.models.model_file import AnyModel, ModelFile, open_model
from pyquant.models.progress import Progress
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_reader import TensorReader
from pyquant.rounding.checkpoint import Checkpoint
from pyquant.rounding.make_plan import make_plan
from pyquant.rounding.on_lattice import lattice_encoder
from pyquant.rounding.plan import Plan
from pyquant.rounding.result import QuantizeResult, TensorResult
from pyquant.rounding.shards import Sharding, Split
from pyquant.rounding.tensor_writer import Passed, TensorWriter, ToWrite
from pyquant.rounding.types import choose_types
from pyquant.schemes import Mode
from pyquant.schemes.asked import parameters_of


def quantize_model(
    source: AnyModel,
    output: str | os.PathLike[str],
    mode: Mode,
    *,
    threads: int | None = None,
    force: bool = False,
    dry_run: bool = False,
    calibrates: bool = False,
    collects: bool = True,
    split: Split | None = None,
    memory: int | None = None,
    checkpoint: Path | None = None,
    progress: Progress | None = None,
    tell: Tell | None = None,
) -> QuantizeResult:
    """Quantize a model, and say what that did.

    Parameters
    ----------
    source
        A path, or an opened model: F32, F16 or BF16.
    output
        The GGUF to write. It appears complete or not at all.
    mode
        How, as `pyquant.make_mode` makes it.
    threads
        None: one for each core. The file does not depend on it.
    force
        Replace an existing `output`.
    dry_run
        Decide the types and sizes; write nothing.
    calibrates
        With `dry_run`: decide them as if the importance matrix were there.
    collects
        Run the model for Hessians that the statistics lack. False: matrices without one are rounded as with
        an imatrix, as a pass is too long for a file that is only tried.
    split
        Write shards, which llama.cpp reads as one model: their most bytes of tensors, or "keep" for the
        shards of `source`. They are called `output` less its suffix, and -00001-of-00002.gguf.
    memory
        With error propagation: bytes that activations may take in memory, the rest being beside `output`;
        None: 512 MiB. The file does not depend on it.
    checkpoint
        A file that lists finished tensors. With it a call that ends early leaves them, and the same call goes
        on behind them; the caller removes it. None: an unfinished output is removed.
    progress
        Called while it goes on.
    tell
        Told remarks before the work begins: with error propagation, how much memory and disk it takes.

    Raises
    ------
    ModelFileError
        The model cannot be read or quantized. The message names tensor and weight.
    ConfigError
        The mode does not fit the model.
    OutputError
        `output` cannot be written.
    """
    begin = time.perf_counter()
    model = given = open_model(source)
    if memory is not None and not mode.hessian:
        raise ConfigError("memory: is of --error-propagation, and without it little memory is taken")
    if not dry_run and split is None:  # shards are not counted yet
        check_output(Path(output), sources=model.paths, force=force)
    sharding = None if split is None else Sharding.of(model, split)
    with ExitStack() as stack:
        if mode.equalize and not dry_run:
            from pyquant.rounding.equalize.equalize_model import equalized

            _check_no_lattice(model, mode)
            model, mode = stack.enter_context(equalized(model, mode, threads, tell))
        plan = make_plan(
            model, mode, threads=threads, sharding=sharding, calibrates=calibrates and dry_run,
            collects=collects,
        )  # fmt: skip
        results = (
            [_result(plan, tensor) for tensor in plan.model.tensors]
            if dry_run
            else write_plan(plan, Path(output), threads, force, progress, memory, checkpoint, tell)
        )
    files = [str(path) for path in plan.paths(Path(output))]
    return QuantizeResult(
        source=str(given.path),
        output=files[0],
        files=files,
        mode=mode.mode,
        parameters=parameters_of(mode, plan.scheme),
        source_bytes=given.n_bytes,
        output_bytes=plan.output_bytes,
        n_weights=given.n_weights,
        seconds=time.perf_counter() - begin,
        tensors=results,
    )


def write_plan(
    plan: Plan,
    output: Path,
    threads: int | None,
    force: bool,
    progress: Progress | None,
    memory: int | None = None,
    checkpoint: Path | None = None,
    tell: Tell | None = None,
) -> list[TensorResult]:
    """Write what a plan describes: a file, or shards. Parameters and errors are those of `quantize_model`."""
    model, mode, paths = plan.model, plan.mode, plan.paths(output)
    results: dict[str, TensorResult] = {}
    finished: Checkpoint | None = None
    if checkpoint:
        planned = {tensor.name: _result(plan, tensor) for tensor in model.tensors}
        finished = Checkpoint(checkpoint, plan, [partial_of(path) for path in paths], planned, tell)
    done = finished.done if finished else {}
    with (
        SourceHash(model.paths if plan.scheme is not None and plan.sha256 is None else []) as source_hash,
        OutputFiles(
            list(zip(paths, plan.file_bytes)), sources=model.paths, force=force, keep=checkpoint is not None
        ) as files,
        TensorReader(model, model.tensors, threads, progress) as reader,
        plan.factors(threads) as factors,
    ):
        writer = TensorWriter(plan, factors, reader, files, threads)

        def write(wanted: Sequence[ToWrite]) -> None:
            left = []
            for each in wanted:
                if each.tensor.name in done:
                    results[each.tensor.name] = done[each.tensor.name]
                    writer.take_up(each)
                else:
                    left.append(each)
            for each, passes in zip(left, writer.write(left)):
                results[each.tensor.name] = _result(plan, each.tensor, passes)
                if finished:
                    finished.note(results[each.tensor.name])

        if plan.staged and plan.calibration:
            from pyquant.rounding.collecting import write_collected
            from pyquant.rounding.error_propagation import write_propagated

            passing: dict[str, Any] = {
                "folder": output.resolve().parent, "done": done, "threads": threads, "memory": memory,
                "tell": tell,
            }  # fmt: skip
            if n_chunks := mode.error_propagation:
                write_propagated(model, plan.calibration, plan.staged, n_chunks, write, **passing)
            else:
                write_collected(model, plan.calibration, plan.staged, write, **passing)
        for tensor in model.tensors:
            if tensor.name not in results:
                together = plan.with_its_factors(tensor)
                write([ToWrite(each) for each in together if each.name not in results])
        if plan.scheme is not None and plan.sha256 is None:
            set_metadata(plan.files[0].header, {"pyquant.source.sha256": source_hash.result()})
        for number, file in enumerate(plan.files):
            files[number].write(file.header.header(), 0)
        files.commit()
    return [results[tensor.name] for tensor in model.tensors]


def _check_no_lattice(model: ModelFile, mode: Mode) -> None:
    """Refuse to equalize weights that lie on a lattice, which other scales of columns leave."""
    types = choose_types(model, mode, has_importance=True).chosen
    for tensor in model.tensors:
        type_ = types[tensor.name]
        if tensor.layer >= 0 and type_ != tensor.type and lattice_encoder(tensor, type_):
            raise ConfigError(
                f"equalize: the weights of {tensor.name} lie on a lattice of {type_.name}, "
                f"which they leave with other scales"
            )


def _result(plan: Plan, tensor: Tensor, passes: Sequence[Passed] = ()) -> TensorResult:
    wanted = plan.fell_back_from(tensor)
    result = TensorResult(
        name=tensor.name,
        source_type=tensor.type.name,
        type=plan.types[tensor.name].name,
        n_weights=tensor.n_weights,
        n_bytes=plan.n_bytes(tensor),
        fell_back_from=wanted.name if wanted is not None else None,
        without_gptq=plan.without_gptq(tensor),
    )
    if not passes or not plan.changes(tensor):
        return result
    return replace(
        result,
        squared_error=sum(one_pass.squared_error for one_pass in passes),
        squared_weight=sum(one_pass.squared_weight for one_pass in passes),
        zeros=sum(one_pass.zeros for one_pass in passes),
    )
