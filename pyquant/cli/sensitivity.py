"""`pyquant sensitivity`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyquant.cli import options
from pyquant.cli.output import count_bar, print_json, print_table


def sensitivity(
    model: Annotated[Path, typer.Argument(metavar="MODEL.gguf", help="F32, F16 or BF16.")],
    calibration: Annotated[
        Path, typer.Option("--calibration", metavar="STATS", help="What `pyquant calibrate` wrote.")
    ],
    text: options.TextFile,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.toml")],
    step: Annotated[float, typer.Option(help="Of the codes that are tried.")] = 0.01,
    ctx: options.Ctx = 512,
    chunks: options.Chunks = 32,
    threads: options.Threads = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Measure how much divergence errors in each kind of tensor cause, for mode uniform."""
    from pyquant.files.output_file import check_output, write_bytes
    from pyquant.fit.measure_sensitivity import measure_sensitivity

    sources = [model, calibration, text]
    check_output(output, sources=sources, force=force)
    with count_bar("sensitivity", "kinds of tensor") as progress:
        found = measure_sensitivity(
            model,
            calibration,
            text,
            step=step,
            n_ctx=ctx,
            n_chunks=chunks,
            threads=threads,
            progress=progress,
        )
    write_bytes(output, found.to_toml().encode(), sources=sources, force=force)
    if json:
        print_json({"schema": "pyquant.sensitivity/1", "output": str(output), "by_kind": dict(found.by_kind)})
        return
    print_table(["kind", "divergence per error"], [[k, f"{v:.3f}"] for k, v in found.by_kind.items()])
    print(f"written to {output}")
