"""`pyquant equalize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from pyquant.cli import options, paths
from pyquant.cli.output import print_lines, show, size
from pyquant.cli.progress import progress_bar


def equalize(
    source: options.FloatModel,
    output: Annotated[
        Path, typer.Argument(metavar="OUT.gguf", parser=paths.output, help="GGUF file to write.")
    ],
    calibration: Annotated[
        Path,
        typer.Option(
            metavar="STATS",
            parser=paths.source,
            help="What `pyquant calibrate` wrote of the model, or an importance matrix.",
        ),
    ],
    stats: Annotated[
        Optional[Path],
        typer.Option(
            "--stats",
            metavar="OUT_STATS",
            parser=paths.output,
            help="Also write what --calibration is of the new model, so that nothing has to be run for it.",
        ),
    ] = None,
    threads: options.Threads = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Scale a model's channels by powers of two, so that quantizing loses less; it computes the same."""
    from pyquant.quantize.equalize.equalize_model import equalize_model

    with progress_bar("equalize") as progress:
        done = equalize_model(
            source, calibration, output, stats=stats, threads=threads, force=force, progress=progress
        )
    show(done.to_json(), json, _print)


def _print(result: dict[str, Any]) -> None:
    lines = {
        "channels": f"{result['n_channels']:,}, of which {result['n_scaled']:,} have another scale",
        "changed by it": f"divergence {result['divergence']:.2g} on random tokens",
        "time": f"{result['seconds']:.2f} s ({size(result['output_bytes'] / result['seconds'])}/s)",
    }
    if result["calibration"]:
        lines["statistics"] = result["calibration"]
    print_lines(lines | {"written to": result["output"]})
