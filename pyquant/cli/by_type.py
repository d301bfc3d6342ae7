"""`pyquant quantize IN OUT TYPE`: llama-quantize's file, or the best one of its type or size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from pyquant import limits
from pyquant.cli import options, paths
from pyquant.cli.number import Number
from pyquant.cli.output import print_lines, print_table, remark, show, size
from pyquant.cli.progress import phases
from pyquant.errors import ConfigError
from pyquant.files.text import Text

if TYPE_CHECKING:
    from pyquant.fit.method.quantize import Quantized

# Options of modes that a type takes as well.
SHARED = ("imatrix", "pure")


@dataclass(frozen=True)
class MethodOptions:
    """How a file of a type or a size is made."""

    method: Annotated[
        str,
        typer.Option(
            metavar="rtn|gptq|best",
            help="rtn: llama-quantize's bytes; gptq: calibrate, then round with error feedback; best: all "
            "that was measured to help.",
        ),
    ] = "rtn"
    text: Annotated[
        Optional[list[Text]],
        typer.Option(
            "--text",
            metavar="FILE",
            parser=paths.text,
            help="UTF-8 text: what gptq and best calibrate on, repeatable; default: code, prose and what the "
            "model writes. With --mode uniform --like: what to evaluate on.",
        ),
    ] = None
    hessian: Annotated[
        Optional[Path],
        typer.Option(
            metavar="FILE",
            parser=paths.folder,
            help="Where gptq and best keep Hessian statistics, made if missing; default: in the cache.",
        ),
    ] = None
    calibration_chunks: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=Number(limits.SEQUENCES),
            help="Chunks that gptq and best calibrate on, at most.",
        ),
    ] = 128
    evaluate: Annotated[
        Optional[Text],
        typer.Option(
            metavar="FILE",
            parser=paths.text,
            help="Then compare with the file that llama-quantize makes, with an imatrix of the same text.",
        ),
    ] = None


def check_mode(mode: options.WrittenMode) -> None:
    """Refuse options of modes beside a type. Raises ConfigError."""
    for field in fields(mode):
        if getattr(mode, field.name) is not None and field.name not in SHARED:
            flag = "--" + field.name.rstrip("_").replace("_", "-")
            raise ConfigError(f"{flag}: is not for a TYPE; drop it, or drop TYPE and give --mode")


def quantize_by_type(
    source: Path,
    output: Path,
    type_: str,
    method: MethodOptions,
    mode: options.WrittenMode,
    *,
    memory: int | None,
    threads: int | None,
    dry_run: bool,
    force: bool,
    json: bool,
) -> None:
    """Do what the command does where a type is given."""
    from pyquant.fit.method.evaluate import beside_stock
    from pyquant.fit.method.quantize import quantize

    check_mode(mode)
    with phases() as progress:
        done = quantize(
            source, output, type_, method=method.method, imatrix=mode.imatrix, text=method.text or None,
            hessian=method.hessian, n_chunks=method.calibration_chunks, pure=bool(mode.pure), memory=memory,
            threads=threads, dry_run=dry_run, force=force, progress=progress, tell=remark,
        )  # fmt: skip
        result = done.to_json()
        if method.evaluate is not None and not dry_run:
            compared = beside_stock(source, done, type_, method.evaluate, threads=threads, progress=progress)
            result["evaluation"] = compared.to_json()
    show(result, json, lambda result: _print(result, dry_run), keep=True)
    for line in _remarks(done):
        remark(line)
    if not dry_run and not method.evaluate:
        remark(f"what it costs: pyquant compare {source} {output} --text FILE")


def _print(result: dict[str, Any], dry_run: bool) -> None:
    before, after = result["source_bytes"], result["output_bytes"]
    if dry_run:
        print_table(
            ["tensor", "from", "to", "size"],
            [[t["name"], t["source_type"], t["type"], size(t["n_bytes"])] for t in result["tensors"]],
        )
    lines = {
        "type": result["mode"].partition(":")[2] or result["mode"],
        "method": result["method"],
        "size": f"{size(before)} -> {size(after)} ({after / before:.1%})",
        "bits per weight": f"{result['bits_per_weight']:.3f} of the whole file",
    }
    if not dry_run:
        lines["time"] = f"{result['seconds']:.1f} s"
    for stage in result["stages"]:
        if stage["kld"]:
            kept = "" if stage["kept"] else ", not kept"
            lines[stage["name"]] = (
                f"held-out KLD {stage['kld']['mean']:.5f} ± {stage['kld']['error']:.5f}{kept}"
            )
    print_lines(lines | {"not written" if dry_run else "written to": result["output"]})
    if "evaluation" in result:
        from pyquant.cli.compare import print_comparison

        print_comparison(result["evaluation"])


def _remarks(done: Quantized) -> Iterator[str]:
    for stage in done.stages:
        if stage.why:
            yield f"{stage.name}: left out: {stage.why}"
    if done.stages and not any(stage.kept for stage in done.stages[1:]):
        yield "no stage lowers the KLD on held-out chunks: the file is llama-quantize's with an imatrix"
