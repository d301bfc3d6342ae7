"""Quantize a model to a type or a size, by a method: what `pyquant quantize IN OUT TYPE` does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyquant import _core, limits
from pyquant.calibration.calibrate import DEFAULT_CTX
from pyquant.calibration.collect import BrokenInput
from pyquant.errors import ConfigError, nearest
from pyquant.evaluate.compare import compare_models
from pyquant.evaluate.comparison import Comparison
from pyquant.files.kept import keeping
from pyquant.files.output_file import check_output
from pyquant.files.output_files import rename_together
from pyquant.files.temporary import temporary_folder
from pyquant.files.text import AnyText, Text, read_texts
from pyquant.fit.candidate import Evaluation
from pyquant.fit.method.forecast import Forecast, forecast
from pyquant.fit.method.held_out import HeldOut
from pyquant.fit.method.hessian import DIAGONAL_CHUNKS, Hessian, HessianMaker, say_not_finite
from pyquant.fit.method.probe import probe
from pyquant.fit.method.room import require_room
from pyquant.fit.method.split_text import SplitText, chunks_for, split_text
from pyquant.fit.method.stages import BY_GPTQ, METHODS, Progress, Stages, Tried, stages_of
from pyquant.fit.method.types_for_size import check_type, mixed_for, stock_for
from pyquant.fit.method.work_folder import WorkFolder
from pyquant.fit.mixtures import WantedSize
from pyquant.llama.check_causal import NotCausal
from pyquant.llama.chunks import cut
from pyquant.llama.model import Model
from pyquant.models.model_file import AnyModel, ModelFile, open_model
from pyquant.rounding.make_plan import make_plan
from pyquant.rounding.quantize_model import quantize_model
from pyquant.rounding.shards import Sharding, Split, shard_paths
from pyquant.rounding.to_pqz import SUFFIX
from pyquant.schemes.settings import make_mode


@dataclass(frozen=True)
class Quantized:
    """A file made by a method.

    Attributes
    ----------
    method
        One of `METHODS`.
    result
        What `quantize_model` says of the file, as JSON.
    mix
        The mix of types, as `Mix.to_json` gives it, where "gptq" or "best" made a file of a size; else None.
    stages
        What was tried, and what of it the file has; empty for "rtn".
    forecast
        What was expected before the work; None for "rtn".
    statistics
        The Hessian statistics that it was made with; None where none were kept.
    evaluation
        The file, and of "gptq" and "best" llama-quantize's with an imatrix of the same texts, beside the
        model; None where none was asked for.
    seconds
        What it took, calibration included.
    """

    method: str
    result: dict[str, Any]
    mix: dict[str, Any] | None
    stages: list[Tried]
    forecast: Forecast | None
    statistics: str | None
    evaluation: Comparison | None
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Give the result as `pyquant quantize --json` prints it."""
        return {
            **self.result,
            "method": self.method,
            "mix": self.mix,
            "stages": [stage.to_json() for stage in self.stages],
            "forecast": self.forecast.to_json() if self.forecast else None,
            "statistics": self.statistics,
            "evaluation": self.evaluation.to_json() if self.evaluation else None,
            "seconds": self.seconds,
        }


def quantize(
    source: AnyModel,
    output: str | os.PathLike[str],
    type: str | WantedSize,
    *,
    method: str = "rtn",
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
    tell: Callable[[str], None] = lambda line: None,
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
    _check_method(method, given, imatrix, memory, requantize)
    model, output = open_model(source), Path(output)
    if output.suffix == SUFFIX:
        raise ConfigError(f"{output}: a type makes a GGUF; `pyquant pack` then stores it as {SUFFIX}")
    common: dict[str, Any] = {"pure": pure, "requantize": requantize}
    if imatrix is not None:
        common["imatrix"] = imatrix
    if isinstance(type, str):
        check_type(type)
    elif pure and method in BY_GPTQ:
        raise ConfigError("pure: a size mixes types with gptq and best; give a type")
    name = type if isinstance(type, str) else stock_for(model, type, common)
    mixed = type if not isinstance(type, str) and method in BY_GPTQ else None
    stock = make_mode({"mode": f"ggml:{name}", **common})
    if evaluate is not None:
        _check_evaluation(model, evaluate)
    if hessian is not None and Path(hessian).resolve() == output.resolve():
        raise ConfigError(f"hessian: {hessian} is the output; name another file")
    if not dry_run and split is None:
        check_output(output, sources=model.paths, force=force)
    expected: Forecast | None = None
    if method != "rtn":
        sharding = None if split is None else Sharding.of(model, split)
        # Refuses what cannot be.
        plan = make_plan(model, stock, threads=threads, sharding=sharding, calibrates=True)
        if not dry_run:
            for path in plan.paths(output):
                check_output(path, sources=model.paths, force=force)
        try:
            parts = _split(model, None if text is None else read_texts(text), n_ctx, n_chunks)
        except NotCausal as error:
            if method != "best":
                raise
            tell(f"rounded to nearest, as nothing else applies: {error}")
            method = "rtn"
    if method != "rtn":
        expecting = partial(
            forecast, model, method, output_bytes=plan.output_bytes, in_file=hessian is not None,
            mixed=mixed is not None,
            probed=probe(model, parts.held_out.n_ctx, threads, n_written=parts.n_written),
            threads=threads,
        )  # fmt: skip
        expected = expecting(parts, memory=memory)
        expect(expected.parts)
        for line in expected.lines():
            tell(line)
        if not dry_run:
            require_room(
                lambda n_chunks, memory: expecting(replace(parts, n_chunks=n_chunks), memory=memory),
                parts.n_chunks, memory, output, Path(hessian) if hessian else None,
            )  # fmt: skip

    def to_nearest(method: str) -> Quantized:
        done = quantize_model(
            model, output, stock, progress=lambda done, total, _name: progress(name, done, total),
            threads=threads, force=force, dry_run=dry_run, calibrates=method != "rtn", split=split, tell=tell,
        )  # fmt: skip
        compared = None
        if evaluate is not None and not dry_run:
            compared = _compare(model, [Path(done.output)], evaluate, threads, progress)
        seconds = time.perf_counter() - begin
        return Quantized(method, done.to_json(), None, [], expected, None, compared, seconds)

    if method == "rtn" or dry_run:
        if mixed is not None:
            tell(f"types of a mix are known when they were measured; these are those of {name}, which fits")
        return to_nearest(method)
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        maker = HessianMaker(
            model, parts, parts.held_out.n_ctx, folder, threads=threads, tell=tell, progress=progress,
            diagonal_chunks=DIAGONAL_CHUNKS if method in BY_GPTQ else parts.n_chunks,
        )  # fmt: skip
        assert expected is not None
        try:
            if hessian:
                statistics = maker.in_file(Path(hessian), output_side=method == "best")
            else:
                statistics = maker.in_cache(
                    output_side=method == "best", whole=expected.keeps_hessians,
                    exact=mixed is not None,
                )  # fmt: skip
        except BrokenInput as error:
            tell(f"rounded to nearest, as nothing else applies: {error}")
            return to_nearest("rtn")
        say_not_finite(statistics.path, tell)
        identity = _identity(model, str(type), pure, method, parts, statistics) | {"split": split}
        work = WorkFolder(output, identity, tell)
        stack.enter_context(keeping(work.path, "finished stages and tensors"))
        stack.enter_context(work)
        settings: dict[str, Any] = {"mode": f"ggml:{name}", "pure": pure}
        mix = None
        if mixed is not None:
            recipe = work.path / "recipe.toml"
            mix = work.known("mix")
            if mix is None or not recipe.exists():
                checkpoint = work.checkpoint("mix")
                if statistics.kept and not hessian:  # in the cache, there for other sizes too
                    checkpoint = statistics.path.with_suffix(".tensors")
                found = mixed_for(
                    model, statistics.path, parts, mixed, recipe, output_side=method == "best",
                    threads=threads, checkpoint=checkpoint, progress=progress,
                )  # fmt: skip
                mix = found.to_json()
                work.note("mix", mix)
            settings = {"mode": "recipe", "recipe": recipe}
        held_out = stack.enter_context(HeldOut(model, parts.held_out, threads, progress))
        options = {"threads": threads, "tell": tell, "split": split}
        stages = Stages(model, settings, held_out, work, options, memory, progress)
        collected = not hessian and not expected.keeps_hessians
        stages.run(
            stages_of(method, statistics.path, output_side=statistics.output_side, collected=collected)
        )
        files = _publish(stages, model, output, force, is_split=split is not None)
        compared = None
        if evaluate is not None:
            peers = []
            if method in BY_GPTQ:
                peers = [folder / f"llama-quantize-{name}.gguf"]
                mode = make_mode({"mode": f"ggml:{name}", "pure": pure, "imatrix": statistics.path})
                quantize_model(model, peers[0], mode, threads=threads)
            compared = _compare(model, [*peers, files[0]], evaluate, threads, progress)
            for peer in peers:  # its folder goes
                compared = compared.renamed(str(peer), peer.name)
        result = {**stages.result, "output": str(files[0]), "files": [str(path) for path in files]}
    kept = str(statistics.path) if statistics.kept else None
    return Quantized(method, result, mix, stages.tried, expected, kept, compared, time.perf_counter() - begin)


def _check_method(
    method: str, given: dict[str, Any], imatrix: object, memory: int | None, requantize: bool
) -> None:
    if method not in METHODS:
        hint = f", did you mean {close}?" if (close := nearest(method, METHODS)) else ";"
        raise ConfigError(f"method: {method!r} is not known{hint} choices: {', '.join(METHODS)}")
    if method == "rtn":
        if names := [f"--{name}" for name, value in given.items() if value is not None]:
            raise ConfigError(f"{', '.join(names)}: of methods that calibrate; add --method gptq or best")
    elif imatrix is not None:
        raise ConfigError(f"--imatrix: is for method rtn; {method} makes its own statistics from --text")
    elif requantize:
        raise ConfigError(f"--requantize: is for method rtn; `pyquant dequantize` makes a model for {method}")
    if memory is not None and method not in BY_GPTQ:
        raise ConfigError("--memory: is for methods gptq and best, which keep activations of tokens")
    if given["hessian"] is not None and method not in BY_GPTQ:
        raise ConfigError(f"--hessian: is for methods gptq and best; {method} has no use for Hessians")


def _check_evaluation(model: ModelFile, evaluate: Evaluation) -> None:
    """Refuse several texts, and one that is too short, before work begins."""
    texts = read_texts(evaluate.text)
    if len(texts) != 1:
        raise ConfigError("evaluate: takes one text; `compare_models` measures a file on each of several")
    with Model(model) as running:
        cut(running, texts[0], n_ctx=evaluate.n_ctx, n_chunks=1)


def _split(model: ModelFile, texts: list[Text] | None, n_ctx: int | None, n_chunks: int | None) -> SplitText:
    with Model(model) as running:
        with running.context(n_ctx=1, n_batch=1, n_ubatch=1, threads=1):
            pass  # NotCausal here, before texts are cut
        n_ctx = n_ctx or min(DEFAULT_CTX, running.n_ctx_train)
        limits.CALIBRATION_CTX.check("ctx", n_ctx)
        return split_text(running, texts, n_ctx, n_chunks or chunks_for(model, n_ctx))


def _identity(
    model: ModelFile, type: str, pure: bool, method: str, split: SplitText, statistics: Hessian
) -> dict[str, Any]:
    """Say all that stages depend on; of statistics in a file also when that was written."""
    of_file = statistics.path.stat()
    written = [str(statistics.path), of_file.st_mtime_ns, of_file.st_size]
    return {
        "model": model.sha256(),
        "type": type,
        "pure": pure,
        "method": method,
        "texts": split.key,
        "n_ctx": split.held_out.n_ctx,
        "statistics": written if statistics.kept else None,
        "pyquant": _core.build_info()["pyquant"],
    }


def _compare(
    model: ModelFile, files: list[Path], evaluate: Evaluation, threads: int | None, progress: Progress
) -> Comparison:
    (text,) = read_texts(evaluate.text)
    return compare_models(
        model, files, text, n_ctx=evaluate.n_ctx, n_chunks=evaluate.n_chunks, threads=threads,
        progress=lambda done, total: progress("evaluation", done, total),
    )  # fmt: skip


def _publish(stages: Stages, model: ModelFile, output: Path, force: bool, *, is_split: bool) -> list[Path]:
    """Give the best stage's file, or its shards, the output's name. Returns what they are called now."""
    assert stages.best, "the first stage fails or is kept"
    files = shard_paths(output, len(stages.best)) if is_split else [output]
    for path in files:
        check_output(path, sources=model.paths, force=force)
    rename_together(list(zip(stages.best, files)))
    return files
