"""`pyquant calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from pyquant.cli import options
from pyquant.cli.output import count_bar, parse_size, print_json, size


def calibrate(
    model: Annotated[Path, typer.Argument(metavar="MODEL.gguf")],
    text: Annotated[
        list[Path], typer.Option("--text", metavar="FILE", help="UTF-8 text to run it over; may be repeated.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="STATS", help="What entered its matrices.")
    ],
    weight: Annotated[
        Optional[list[float]],
        typer.Option("--weight", help="How much tokens count, one for each --text, in their order."),
    ] = None,
    imatrix: Annotated[
        Optional[Path], typer.Option(metavar="FILE", help="Also write what llama-imatrix would.")
    ] = None,
    ctx: Annotated[
        Optional[int], typer.Option(help="Tokens in a chunk; default: 512, or what it was trained with.")
    ] = None,
    chunks: Annotated[Optional[int], typer.Option(help="Only the first chunks of each text.")] = None,
    memory: Annotated[
        Optional[str],
        typer.Option(metavar="SIZE", help="What sums may take, such as 2GB; the others are spooled to disk."),
    ] = None,
    random: Annotated[
        float,
        typer.Option(help="Share of tokens drawn at random in the moments, against a text's one-sidedness."),
    ] = 0.25,
    process_output: Annotated[
        bool, typer.Option("--process-output", help="Also collect what enters the output matrix.")
    ] = False,
    threads: options.Threads = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Collect the second moments of what enters a model's matrices, for quantizing it."""
    from pyquant.calibration.calibrate import calibrate_model as run

    with count_bar(model.name) as progress:
        report = run(
            model, text, output, weights=weight, n_ctx=ctx, n_chunks=chunks, threads=threads,
            memory=None if memory is None else parse_size("memory", memory), imatrix=imatrix,
            process_output=process_output, random=random, force=force, progress=progress,
        )  # fmt: skip
    result = report.to_json()
    if json:
        print_json(result)
        return
    rate = result["n_tokens"] / result["seconds"]
    lines = [
        ("tokens", f"{result['n_tokens']:,} in chunks of {result['n_ctx']}"),
        ("inputs", f"{result['n_inputs']}, of {result['n_matrices']} matrices"),
        ("sums", size(result["sums_bytes"])),
        ("time", f"{result['seconds']:.2f} s ({rate:,.0f} tokens/s)"),
        ("written to", f"{result['output']} ({size(result['output_bytes'])})"),
    ]
    for name, value in lines:
        print(f"{name:<16} {value}")
