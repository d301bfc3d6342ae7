"""Quantize a model to a type or a size, by a method: what `pyquant quantize IN OUT TYPE` does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyquant import limits
from pyquant.calibration.calibrate import DEFAULT_CTX
from pyquant.calibration.collect import BrokenInput
from pyquant.errors import ConfigError, Tell
from pyquant.files.output_file import check_apart, check_output
from pyquant.files.text import AnyText, Text, read_texts
from pyquant.fit.evaluation import Evaluation
from pyquant.fit.method.by_stages import by_stages
from pyquant.fit.method.expected_work import Work
from pyquant.fit.method.forecast import Forecast, forecast
from pyquant.fit.method.hessian import given_statistics
from pyquant.fit.method.probe import probe
from pyquant.fit.method.quantized import Quantized
from pyquant.fit.method.request import Request, check_evaluation, check_method
from pyquant.fit.method.room import require_room
from pyquant.fit.method.split_text import SplitText, chunks_for, split_text
from pyquant.fit.method.stages import BY_GPTQ, HIGH, NORMAL, Progress
from pyquant.fit.method.types_for_size import check_type, stock_for, with_spare
from pyquant.fit.mixtures import WantedSize
from pyquant.llama.check_causal import NotCausal
from pyquant.llama.model import Model
from pyquant.models.model_file import AnyModel, ModelFile, open_model
from pyquant.models.pqz.pqz_file import PQZ_SUFFIX
from pyquant.rounding.make_plan import make_plan
from pyquant.rounding.quantize_model import quantize_model
from pyquant.rounding.shards import Sharding, Split
from pyquant.schemes.settings import make_mode


def quantize(
    source: AnyModel,
    output: str | os.PathLike[str],
    type: str | WantedSize,
    *,
    method: str = "rtn",
    effort: str = NORMAL,
    imatrix: str | os.PathLike[str] | None = None,
    text: AnyText | Sequence[AnyText] | None = None,
    hessian: str | os.PathLike[str] | None = None,
    n_ctx: int | None = None,
    n_chunks: int | None = None,
    pure: bool = False,
    requantize: bool = False,
    evaluate: Evaluation | None = None,
    split: Split | None = None,
    memory: int | None = None,
    threads: int | None = None,
    dry_run: bool = False,
    force: bool = False,
    progress: Progress = lambda what, done, total: None,
    expect: Callable[[Sequence[tuple[str, float]]], None] = lambda parts: None,
    tell: Tell = lambda line: None,
) -> Quantized:
    """Quantize a model.

    A call that is killed leaves its finished stages in a hidden folder beside `output`, and the same call
    goes on from them.

    Parameters
    ----------
    source
        A path, or an opened model: F32, F16 or BF16.
    output
        The GGUF to write. It appears complete or not at all.
    type
        As llama-quantize takes it, such as "Q4_K_M"; or the size that the file is to have at most. For a size
        "rtn" and "imatrix" take the largest type that fits, and the others mix types of the least KLD.
    method
        "rtn" makes llama-quantize's file, with `imatrix` what it makes with one. The others calibrate:
        "imatrix" makes what llama-quantize makes with an imatrix of the texts. "gptq" rounds with error
        feedback (GPTQ). "best" adds what is known to help: an output-side Hessian, cross-layer equalization,
        error propagation. Both keep the stages of the least KLD on chunks that were held out of the
        calibration. Of a model that is no decoder "best" makes what "rtn" does.
    effort
        "high": scales of rows and norms are then trained on KLD, for "gptq" and "best", of models whose
        gradients are known. That lowers the KLD of types below 4 bits.
    imatrix
        An importance matrix, for "rtn".
    text
        What to calibrate on; None: code and prose of Python's library, and what the model generates.
    hessian
        Where Hessian statistics are kept, for "gptq" and "best"; None: in the cache. They are made if they
        are not there.
    n_ctx, n_chunks
        Tokens of a chunk (None: 512, or fewer if the model was trained with fewer), and the most chunks to
        calibrate on (None: 128, more where matrices are wide).
    pure
        Give every tensor the same type.
    requantize
        For "rtn": take a model that is quantized already.
    evaluate
        What to measure the KLD of the file on: one text.
    split
        Write shards, as `quantize_model` does: their most bytes, or "keep".
    memory
        For "gptq" and "best": bytes that activations may take in memory, the rest being beside `output`;
        None: 512 MiB. The file does not depend on it.
    threads
        None: one for each core. The file does not depend on it.
    dry_run
        Decide types and sizes; write nothing.
    force
        Replace an existing `output`.
    progress
        Called with what is done, and its steps done and all.
    expect
        Called once with what `progress` will be called with, in that order, and the seconds that each is
        expected to take. What is a part of one is called "PART: STEP".
    tell
        Told remarks.

    Raises
    ------
    ConfigError
        The type or the method is unknown, or an option is of another method.
    ModelFileError, TextError, OutputError
    """
    begin = time.perf_counter()
    own_ctx = n_ctx if evaluate is None else None  # else it may be meant for the evaluation
    given = {"text": text, "hessian": hessian, "calibration-chunks": n_chunks, "ctx": own_ctx}
    trains_scales = effort == HIGH
    check_method(method, effort, given, imatrix, memory, requantize)
    model, output = open_model(source), Path(output)
    if output.suffix == PQZ_SUFFIX:
        raise ConfigError(f"{output}: a type makes a GGUF; `pyquant pack` then stores it as {PQZ_SUFFIX}")
    common: dict[str, Any] = {"pure": pure, "requantize": requantize}
    if imatrix is not None:
        common["imatrix"] = imatrix
    if isinstance(type, str):
        check_type(type)
        name = type
    elif not model.n_weights:
        raise ConfigError(f"size: {model.path} has no tensors whose types make a size; give a type")
    elif pure and method in BY_GPTQ:
        raise ConfigError("pure: a size mixes types with gptq and best; give a type")
    else:
        type = with_spare(type, method, trains_scales=trains_scales)
        name = stock_for(model, type, common, method, split)
    stock = make_mode({"mode": f"ggml:{name}", **common})
    n_evaluated = 0 if evaluate is None else check_evaluation(model, evaluate)
    if hessian is not None:
        check_apart(Path(hessian), output)
        if not Path(hessian).exists() and not dry_run:
            check_output(Path(hessian), sources=model.paths, force=False)
    if not dry_run and split is None:
        check_output(output, sources=model.paths, force=force)
    request = Request(
        model, output, type, method, trains_scales, name, stock, pure,
        Path(hessian) if hessian else None, evaluate, split, memory, threads, force, progress, tell,
    )  # fmt: skip
    expected: Forecast | None = None
    if method != "rtn":
        n_bytes = _check_files(request, dry_run=dry_run)
        try:
            texts = _split(model, None if text is None else read_texts(text), n_ctx, n_chunks)
        except NotCausal as error:
            if method != "best":
                raise
            tell(f"rounded to nearest, as nothing else applies: {error}")
            request = _without_method(request, common)
        else:
            expected = _expect(request, texts, n_bytes, n_evaluated, expect, dry_run=dry_run)
    if expected is None or dry_run:
        if request.mixed is not None:
            tell(f"types of a mix are known when they were measured; these are those of {name}")
        done = _to_nearest(request, dry_run=dry_run)
    else:
        try:
            done = by_stages(request, texts, expected)
        except BrokenInput as error:
            tell(f"rounded to nearest, as nothing else applies: {error}")
            done = _to_nearest(_without_method(request, common))
    return replace(done, forecast=expected, seconds=time.perf_counter() - begin)


def _check_files(request: Request, *, dry_run: bool) -> int:
    """Refuse what the type cannot be, and files that must not be written; returns their bytes together."""
    sharding = None if request.split is None else Sharding.of(request.model, request.split)
    plan = make_plan(
        request.model, request.stock, threads=request.threads, sharding=sharding, calibrates=True
    )
    if not dry_run:
        for path in plan.paths(request.output):
            check_output(path, sources=request.model.paths, force=request.force)
    return plan.output_bytes


def _split(model: ModelFile, texts: list[Text] | None, n_ctx: int | None, n_chunks: int | None) -> SplitText:
    with Model(model) as running:
        with running.context(n_ctx=1, n_batch=1, n_ubatch=1, threads=1):
            pass  # NotCausal here, before texts are cut
        n_ctx = min(DEFAULT_CTX, running.n_ctx_train) if n_ctx is None else n_ctx
        limits.CALIBRATION_CTX.check("ctx", n_ctx)
        n_chunks = chunks_for(model, n_ctx) if n_chunks is None else n_chunks
        limits.SEQUENCES.check("calibration-chunks", n_chunks)
        return split_text(running, texts, n_ctx, n_chunks)


def _expect(
    request: Request,
    texts: SplitText,
    n_bytes: int,
    n_evaluated: int,
    expect: Callable[[Sequence[tuple[str, float]]], None],
    *,
    dry_run: bool,
) -> Forecast:
    """Say what a method will take, and refuse what there is no room for.

    n_bytes: of the output. n_evaluated: tokens that it is evaluated on.
    """
    work = Work(
        request.model, request.method, texts, output_bytes=n_bytes, in_file=request.hessian is not None,
        given=given_statistics(request.hessian, request.model),
        mixed=request.mixed is not None, high_effort=request.trains_scales, n_evaluated=n_evaluated,
        probed=probe(request.model, texts.held_out.n_ctx, request.threads, n_written=texts.n_written),
        memory=request.memory, threads=request.threads,
    )  # fmt: skip
    expected = forecast(work)
    expect(expected.parts)
    for line in expected.lines():
        request.tell(line)
    if not dry_run:
        require_room(
            lambda n_chunks, memory: forecast(
                replace(work, texts=replace(texts, n_chunks=n_chunks), memory=memory)
            ),
            texts.n_chunks, request.memory, request.output, request.hessian,
        )  # fmt: skip
    return expected


def _without_method(request: Request, common: dict[str, Any]) -> Request:
    """Ask for llama-quantize's file instead. Raises ConfigError: of a size, no type fits."""
    name = request.name
    if request.mixed is not None:
        wanted = with_spare(request.mixed, "rtn")
        name = stock_for(request.model, wanted, common, "rtn", request.split)
    return replace(request, method="rtn", name=name, stock=make_mode({"mode": f"ggml:{name}", **common}))


def _to_nearest(request: Request, *, dry_run: bool = False) -> Quantized:
    """Make llama-quantize's file."""
    done = quantize_model(
        request.model, request.output, request.stock,
        progress=lambda done, total, _name: request.progress(request.name, done, total),
        threads=request.threads, force=request.force, dry_run=dry_run, calibrates=request.method != "rtn",
        split=request.split, tell=request.tell,
    )  # fmt: skip
    compared = None if dry_run else request.compare([Path(done.output)])
    return Quantized(request.method, done.to_json(), None, [], None, compared)
