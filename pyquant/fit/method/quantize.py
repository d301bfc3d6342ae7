"""Quantize a model to a type or a size, by a method: what `pyquant quantize IN OUT TYPE` does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyquant import limits
from pyquant.calibration.calibrate import DEFAULT_CTX
from pyquant.errors import ConfigError
from pyquant.files.output_file import check_output, output_errors
from pyquant.files.temporary import temporary_folder
from pyquant.files.text import AnyText, read_texts
from pyquant.fit.method.held_out import HeldOut
from pyquant.fit.method.hessian import Hessian
from pyquant.fit.method.split_text import split_text
from pyquant.fit.method.stages import METHODS, Progress, Stages, Tried, stages_of
from pyquant.fit.method.types_for_size import check_type, mixed_for, stock_for
from pyquant.fit.method.work_folder import WorkFolder
from pyquant.fit.mixtures import WantedSize
from pyquant.llama.model import Model
from pyquant.models.model_file import AnyModel, ModelFile, open_model
from pyquant.rounding.quantize_model import quantize_model
from pyquant.rounding.to_pqz import SUFFIX
from pyquant.schemes.settings import make_mode

N_CHUNKS = 128  # that are calibrated on, at most


@dataclass(frozen=True)
class Quantized:
    """A file made by a method.

    Attributes
    ----------
    method
        One of `METHODS`.
    result
        What `quantize_model` says of the file, as JSON.
    stages
        What was tried, and what of it the file has; empty for "rtn".
    statistics
        The Hessian statistics that it was made with; None: none.
    seconds
        What it took, calibration included.
    """

    method: str
    result: dict[str, Any]
    stages: list[Tried]
    statistics: str | None
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Give the result as `pyquant quantize --json` prints it."""
        return {
            **self.result,
            "method": self.method,
            "stages": [stage.to_json() for stage in self.stages],
            "statistics": self.statistics,
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
    n_chunks: int = N_CHUNKS,
    pure: bool = False,
    memory: int | None = None,
    threads: int | None = None,
    dry_run: bool = False,
    force: bool = False,
    progress: Progress = lambda what, done, total: None,
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
        "rtn" takes the largest type that fits, and the others mix types of the least KLD.
    method
        "rtn" makes llama-quantize's file, with `imatrix` what it makes with one. "gptq" calibrates, and
        rounds with error feedback (GPTQ). "best" adds what is known to help: an output-side Hessian,
        cross-layer equalization, error propagation. Both keep only the stages that lower the KLD on chunks
        that were held out of the calibration.
    imatrix
        An importance matrix, for "rtn".
    text
        What to calibrate on, for "gptq" and "best"; None: code and prose of Python's library, and what the
        model itself writes.
    hessian
        Where Hessian statistics are kept; None: in the cache. They are made if they are not there.
    n_ctx, n_chunks
        Tokens of a chunk (None: 512, or fewer if the model was trained with fewer), and the most chunks to
        calibrate on.
    pure
        Give every tensor the same type.
    memory
        Bytes that error propagation may keep in memory; None: all of it.
    threads
        None: one for each core. The file does not depend on it.
    dry_run
        Decide types and sizes; write nothing.
    force
        Replace an existing `output`.
    progress
        Called with what is done, and its steps done and all.
    tell
        Told remarks.

    Raises
    ------
    ConfigError
        The type or the method is unknown, or an option is of another method.
    ModelFileError, TextError, OutputError
    """
    begin = time.perf_counter()
    if method not in METHODS:
        raise ConfigError(f"method: {method!r} is not known; choices: {', '.join(METHODS)}")
    model, output = open_model(source), Path(output)
    if output.suffix == SUFFIX:
        raise ConfigError(f"{output}: a type makes a GGUF; `pyquant pack` then stores it as {SUFFIX}")
    if method != "rtn" and imatrix is not None:
        raise ConfigError(f"imatrix: is of method rtn; {method} makes its own statistics of --text")
    common: dict[str, Any] = {"pure": pure}
    if imatrix is not None:
        common["imatrix"] = imatrix
    settings: dict[str, Any] = {}
    if isinstance(type, str):
        check_type(type)
        settings = {"mode": f"ggml:{type}", **common}
    if method == "rtn" or dry_run:
        if method == "rtn" and (text is not None or hessian is not None):
            raise ConfigError("text, hessian: are of methods gptq and best; rtn takes an imatrix")
        name = type if isinstance(type, str) else stock_for(model, type, common)
        done = quantize_model(
            model, output, make_mode({"mode": f"ggml:{name}", **common}), threads=threads, force=force,
            dry_run=dry_run, tell=tell, progress=lambda done, total, _name: progress(name, done, total),
        )  # fmt: skip
        return Quantized(method, done.to_json(), [], None, time.perf_counter() - begin)
    check_output(output, sources=model.paths, force=force)
    texts = None if text is None else read_texts(text)
    options = {"threads": threads, "memory": memory, "tell": tell}
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        with Model(model) as running:
            n_ctx = n_ctx or min(DEFAULT_CTX, running.n_ctx_train)
            limits.CALIBRATION_CTX.check("ctx", n_ctx)
            split = split_text(running, texts, n_ctx, n_chunks)
        made = Hessian(model, split, n_ctx, Path(hessian) if hessian else None, folder, tell)
        statistics = made.make(
            gradients=method == "best",
            threads=threads,
            progress=lambda done, total: progress("calibration", done, total),
        )
        identity = {
            "model": model.sha256(), "settings": settings or str(type), "method": method, "texts": split.key,
            "statistics": str(statistics), "n_ctx": n_ctx,
        }  # fmt: skip
        work = stack.enter_context(WorkFolder(output, identity))
        if not isinstance(type, str):
            recipe = work.path / "recipe.toml"
            if work.known("mix") is None:
                mixed_for(model, statistics, texts, type, recipe, threads=threads, progress=progress)
                work.note("mix", {})
            settings = {"mode": "recipe", "recipe": recipe}
        held_out = stack.enter_context(HeldOut(model, split.held_out, threads))
        stages = Stages(model, settings, held_out, work, options, progress)
        stages.run(stages_of(method, statistics))
        _publish(stages, model, output, force)
        result = {**stages.result, "output": str(output)}
    return Quantized(method, result, stages.tried, str(statistics), time.perf_counter() - begin)


def _publish(stages: Stages, model: ModelFile, output: Path, force: bool) -> None:
    assert stages.best is not None, "the first stage fails or is kept"
    check_output(output, sources=model.paths, force=force)
    with output_errors(output):
        os.replace(stages.best, output)
