"""`pyquant quantize IN OUT TYPE`: llama-quantize's file, or the best one of its type or size."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Optional

import typer

from pyquant import limits
from pyquant.cli import options, paths
from pyquant.cli.mix_table import print_types_of, trials_of
from pyquant.cli.number import number_option
from pyquant.cli.output import number, print_lines, print_table, remark, show, size, written
from pyquant.cli.panels import EXPERT
from pyquant.cli.progress import phases
from pyquant.cli.tensor_remarks import print_types, tensor_remarks
from pyquant.errors import ConfigError
from pyquant.files.text import Text

if TYPE_CHECKING:
    from pyquant.fit.method.quantized import Quantized
    from pyquant.fit.mixtures import WantedSize as Wanted
    from pyquant.rounding.shards import Split

# Options of modes that a type takes as well.
NAMING = ("mode", "config", "scheme", "recipe")  # options that say a mode
SHARED = ("imatrix", "pure", "requantize", "hessian")


@dataclass(frozen=True)
class MethodOptions:
    """How a file of a type or a size is made."""

    panel: ClassVar[str] = "Method"

    method: Annotated[
        Optional[str],
        typer.Option(
            metavar="rtn|imatrix|gptq|best",
            help="rtn: llama-quantize's bytes; the others calibrate. imatrix: its bytes with an imatrix; "
            "gptq: round with error feedback; best: all that was measured to help; default: rtn.",
        ),
    ] = None
    effort: Annotated[
        Optional[str],
        typer.Option(
            metavar="normal|high",
            help="high: train scales of rows and norms on KLD at last, which lowers that of types below "
            "4 bits; for gptq and best.",
            rich_help_panel=EXPERT,
        ),
    ] = None
    text: Annotated[
        Optional[list[Text]],
        typer.Option(
            "--text",
            metavar="FILE",
            parser=paths.text,
            help="UTF-8 text to calibrate on, repeatable; default: code, prose and what the "
            "model generates. With --mode ecsq --like: what to evaluate on.",
        ),
    ] = None
    evaluate: Annotated[
        Optional[Text],
        typer.Option(
            metavar="FILE",
            parser=paths.text,
            help="Then measure its KLD on this text; of gptq and best beside the file that llama-quantize "
            "makes with an imatrix of the same calibration.",
        ),
    ] = None
    calibration_chunks: Annotated[
        Optional[int],
        number_option(
            limits.SEQUENCES,
            "N",
            "Chunks to calibrate on, at most; default: 128, more where matrices are wide.",
            panel=EXPERT,
        ),
    ] = None
    ctx: Annotated[
        Optional[int],
        number_option(
            limits.CTX,
            "TOKENS",
            "Tokens in a chunk of a text; default: 512, or fewer if the model was trained with fewer.",
            panel=EXPERT,
        ),
    ] = None
    chunks: Annotated[
        Optional[int],
        number_option(
            limits.CHUNKS,
            "N",
            "With --evaluate, or --mode ecsq --like: only the first chunks of that text; default: all.",
            panel=EXPERT,
        ),
    ] = None
    memory: Annotated[
        Optional[str],
        typer.Option(
            metavar="SIZE",
            help="Memory for activations of error propagation, such as 2GB; the rest is on disk, beside the "
            "output; default: 512 MiB.",
            rich_help_panel=EXPERT,
        ),
    ] = None


def wanted_type(
    type_: str | None, target: options.WantedSize, mode: options.WrittenMode
) -> str | Wanted | None:
    """Return the type or the size that is wanted; None where a mode is. Raises ConfigError."""
    if type_ is not None and target.given:
        raise ConfigError("give one of TYPE, --target-size, --target-bpw and --like")
    if type_ is not None or not target.given:
        return type_
    return None if any((mode.mode, mode.config, mode.scheme)) else target.read()


def check_mode(mode: options.WrittenMode) -> None:
    """Refuse options of modes beside a type or a size. Raises ConfigError."""
    for field in fields(mode):
        if getattr(mode, field.name) is not None and field.name not in SHARED:
            flag = "--" + field.name.rstrip("_").replace("_", "-")
            mode_too = "" if field.name in NAMING else " and give --mode"
            raise ConfigError(f"{flag}: is not for a type or a size; drop it, or drop that{mode_too}")


def check_method(method: MethodOptions, *, has_target: bool) -> None:
    """Refuse options of types beside a mode, but for the text of a target. Raises ConfigError."""
    flags: dict[str, object] = {
        "--method": method.method, "--effort": method.effort, "--evaluate": method.evaluate,
        "--calibration-chunks": method.calibration_chunks,
    }  # fmt: skip
    if not has_target:
        flags |= {"--text": method.text, "--ctx": method.ctx, "--chunks": method.chunks}
    for flag, value in flags.items():
        if value:
            raise ConfigError(f"{flag}: is for a type or a size; drop it, or give TYPE and no mode")


def quantize_by_type(
    source: Path,
    output: Path,
    type_: str | Wanted,
    method: MethodOptions,
    mode: options.WrittenMode,
    *,
    split: Split | None,
    memory: int | None,
    threads: int | None,
    dry_run: bool,
    force: bool,
    json: bool,
) -> None:
    """Do what the command does where a type is given."""
    from pyquant.calibration.calibrate import DEFAULT_CTX
    from pyquant.fit.evaluation import Evaluation
    from pyquant.fit.method.quantize import quantize
    from pyquant.models.model_file import open_model

    check_mode(mode)
    if method.chunks is not None and method.evaluate is None:
        raise ConfigError("--chunks: is of --evaluate; --calibration-chunks is of methods that calibrate")
    model, evaluate = open_model(source), None
    if method.evaluate:
        trained = model.hyperparameter("context_length", DEFAULT_CTX)
        evaluate = Evaluation(method.evaluate, method.ctx or min(DEFAULT_CTX, trained), method.chunks)
    with phases() as progress:
        done = quantize(
            model, output, type_, method=method.method or "rtn", effort=method.effort or "normal",
            imatrix=mode.imatrix,
            text=method.text or None, hessian=mode.hessian, n_ctx=method.ctx,
            n_chunks=method.calibration_chunks, pure=bool(mode.pure), requantize=bool(mode.requantize),
            evaluate=evaluate, split=split, memory=memory, threads=threads, dry_run=dry_run, force=force,
            progress=progress, expect=progress.expect, tell=remark,
        )  # fmt: skip
    show(done.to_json(), json, lambda result: _print(result, dry_run), keep=True)
    for line in [*tensor_remarks(done.result["tensors"]), *_remarks(done)]:
        remark(line)
    if not dry_run and not method.evaluate:
        files = shlex.join([str(source), done.result["output"]])
        remark(f"what it costs: pyquant compare {files} --text FILE")


def _print(result: dict[str, Any], dry_run: bool) -> None:
    before, after = result["source_bytes"], result["output_bytes"]
    if dry_run:
        print_types(result["tensors"])
    lines = {
        "type": result["mode"].partition(":")[2] or result["mode"],
        "method": result["method"],
        "size": f"{size(before)} -> {size(after)} ({after / before:.1%})",
        "bits per weight": f"{number(result['bits_per_weight'], '.3f')} of the whole file",
    }
    if not dry_run:
        lines["time"] = f"{result['seconds']:.1f} s"
    if mix := result["mix"]:
        print_types_of(mix)
        lines |= trials_of(mix)
    print_lines(lines | {"not written" if dry_run else "written to": written(result["files"])})
    if result["stages"]:
        print_table(
            ["stage", "held-out KLD", "kept"],
            [
                [stage["name"], _shown(kld), "yes" if stage["kept"] else "no"]
                for stage in result["stages"]
                if (kld := stage["kld"])
            ],
        )
    if result["evaluation"]:
        from pyquant.cli.compare_table import print_comparisons

        print_comparisons([result["evaluation"]])


def _shown(kld: dict[str, Any]) -> str:
    error = "of one chunk" if kld["error"] is None else f"± {kld['error']:.5f}"
    return f"{kld['mean']:.5f} {error}"


def _remarks(done: Quantized) -> Iterator[str]:
    for stage in done.stages:
        if stage.why:
            yield f"{stage.name}: left out: {stage.why}"
    others = [stage for stage in done.stages[1:] if stage.kld]
    if others and not any(stage.kept for stage in others):
        yield "no stage lowers the KLD on held-out chunks: the file is llama-quantize's with an imatrix"
