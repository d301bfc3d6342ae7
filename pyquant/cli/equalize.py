"""`pyquant equalize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from pyquant.cli import options, paths
from pyquant.cli.conversion import convert


def equalize(
    source: options.FloatModel,
    output: options.Output,
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
    from pyquant.rounding.equalize.equalize_model import equalize_model

    convert(
        "equalize",
        lambda progress: equalize_model(
            source, calibration, output, stats=stats, threads=threads, force=force, progress=progress
        ),
        json,
        _lines,
    )


def _lines(result: dict[str, Any]) -> dict[str, str]:
    lines = {
        "channels": f"{result['n_channels']:,}, of which {result['n_scaled']:,} have another scale",
        "changed by it": f"divergence {result['divergence']:.2g} on random tokens",
    }
    if result["calibration"]:
        lines["statistics"] = result["calibration"]
    return lines
