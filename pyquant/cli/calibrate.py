"""`pyquant calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from pyquant import limits
from pyquant.cli import options, paths
from pyquant.cli.groups import grouped
from pyquant.cli.number import number_option
from pyquant.cli.offload import OffloadOptions
from pyquant.cli.output import percent, print_lines, remark, show, size
from pyquant.cli.progress import phases
from pyquant.files.text import Text


@grouped
def calibrate(
    *,
    model: options.FloatModel,
    output: Annotated[Path, options.output_option("HESSIAN", "File for the Hessian statistics.")],
    text: Annotated[
        Optional[list[Text]],
        typer.Option(
            "--text",
            metavar="FILE",
            parser=paths.text,
            help="UTF-8 text to run it over; - is standard input; repeatable; default: a mixture of Python's "
            "library and of what the model generates, for any text.",
        ),
    ] = None,
    weight: Annotated[
        Optional[list[float]],
        number_option(
            limits.WEIGHT,
            "X",
            "How much tokens count, one for each --text, in their order; default: 1.",
            "--weight",
        ),
    ] = None,
    imatrix: Annotated[
        Optional[Path],
        typer.Option(metavar="FILE", parser=paths.output, help="Also write what llama-imatrix would."),
    ] = None,
    ctx: Annotated[
        Optional[int],
        number_option(
            limits.CALIBRATION_CTX,
            "TOKENS",
            "Tokens in a chunk; default: 512, or what the model was trained with.",
        ),
    ] = None,
    chunks: Annotated[
        Optional[int],
        number_option(
            limits.CHUNKS,
            "N",
            "Use only the first chunks of each text, of the mixture so many in all; default: all, of "
            "the mixture 128.",
            "--chunks",
        ),
    ] = None,
    memory: Annotated[
        Optional[str],
        typer.Option(
            metavar="SIZE",
            help="Memory for sums of inputs, such as 2GB; those beyond it are on disk; default: all of it.",
        ),
    ] = None,
    random: Annotated[
        float,
        number_option(
            limits.SHARE,
            "SHARE",
            "Share of random tokens in H, against a text's one-sidedness.",
        ),
    ] = 0.25,
    imatrix_only: Annotated[
        bool,
        typer.Option(
            "--imatrix-only",
            help="Collect the diagonals alone, in little memory; GPTQ then collects Hessians layer by layer.",
        ),
    ] = False,
    process_output: Annotated[
        bool, typer.Option("--process-output", help="Also collect what enters the output matrix.")
    ] = False,
    output_side: Annotated[
        Optional[int],
        number_option(
            limits.SEQUENCES,
            "CHUNKS",
            "Also collect output-side Hessians (YAQA) over so many chunks; Llama and Qwen without experts.",
        ),
    ] = None,
    sums_on_gpu: Annotated[
        bool,
        typer.Option(
            "--sums-on-gpu/--sums-on-cpu",
            rich_help_panel="GPU",
            help="Where Hessians of layers on a GPU are summed up, those of experts left out.",
        ),
    ] = True,
    threads: options.Threads = None,
    offload: OffloadOptions,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Collect Hessian statistics and an imatrix, for GPTQ.

    H = E[x xT] of the inputs x of each matrix; its diagonal is the importance matrix.
    """
    offload.use()
    from pyquant.calibration.calibrate import RUNNING, calibrate_model

    with phases({RUNNING: "chunks"}) as progress:
        report = calibrate_model(
            model, text or None, output, weights=weight, n_ctx=ctx, n_chunks=chunks, threads=threads,
            memory=None if memory is None else limits.parse_size("memory", memory), imatrix=imatrix,
            imatrix_only=imatrix_only, process_output=process_output, output_side=output_side,
            random=random, sums_on_gpu=sums_on_gpu, force=force, progress=progress, tell=remark,
        )  # fmt: skip
    if report.copying_seconds or report.waiting_seconds:
        copying, waiting = (
            percent(part / report.seconds) for part in (report.copying_seconds, report.waiting_seconds)
        )
        remark(f"the GPU waited {copying} of the time for copies of activations, {waiting} for sums")
    show(report.to_json(), json, _print)


def _print(result: dict[str, Any]) -> None:
    rate = result["n_tokens"] / result["seconds"]
    print_lines(
        {
            "tokens": f"{result['n_tokens']:,} in chunks of {result['n_ctx']}",
            "inputs": f"{result['n_inputs']}, of {result['n_matrices']} matrices",
            **({"not finite": f"what enters {', '.join(result['left_out'])}"} if result["left_out"] else {}),
            "sums": size(result["sums_bytes"]),
            **({"taken up": f"after batch {result['resumed_at']}"} if result["resumed_at"] else {}),
            "time": f"{result['seconds']:.2f} s ({rate:,.0f} tokens/s)",
            "written to": f"{result['output']} ({size(result['output_bytes'])})",
        }
    )
