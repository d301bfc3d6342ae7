"""`pyquant sensitivity`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pyquant import limits
from pyquant.cli import options, paths
from pyquant.cli.number import Number
from pyquant.cli.output import print_table, show
from pyquant.cli.progress import count_bar


def sensitivity(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL.gguf", parser=paths.source, help="Model in F32, F16 or BF16.")
    ],
    calibration: Annotated[
        Path,
        typer.Option(
            "--calibration", metavar="STATS", parser=paths.source, help="What `pyquant calibrate` wrote."
        ),
    ],
    text: options.TextFile,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE.toml", parser=paths.output, help="File for the sensitivities."
        ),
    ],
    step: Annotated[
        float, typer.Option(metavar="X", parser=Number(limits.STEP), help="Step of the codes that are tried.")
    ] = 0.01,
    ctx: options.Ctx = 512,
    chunks: options.Chunks = 32,
    threads: options.Threads = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Measure how much divergence errors in each kind of tensor cause, for mode uniform."""
    from pyquant.files.output_file import check_output, write_bytes
    from pyquant.fit.measure_sensitivity import measure_sensitivity

    check_output(output, sources=[], force=force)
    with count_bar("sensitivity", "kinds of tensor") as progress:
        measured = measure_sensitivity(
            model,
            calibration,
            text,
            step=step,
            n_ctx=ctx,
            n_chunks=chunks,
            threads=threads,
            progress=progress,
        )
    write_bytes(output, measured.to_toml().encode(), sources=[], force=force)
    result = {
        "schema": "pyquant.sensitivity/1",
        "output": str(output),
        "by_kind": dict(measured.by_kind),
    }
    show(result, json, _print)


def _print(result: dict[str, Any]) -> None:
    rows = [[kind, f"{value:.3f}"] for kind, value in result["by_kind"].items()]
    print_table(["kind", "divergence per error"], rows)
    print(f"written to {result['output']}")
