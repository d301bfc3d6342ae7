"""`pyquant equalize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from pyquant.cli import options, paths
from pyquant.cli.conversion import convert
from pyquant.cli.groups import grouped
from pyquant.cli.offload import OffloadOptions


@grouped
def equalize(
    source: options.FloatModel,
    output: options.Output,
    offload: OffloadOptions,
    hessian: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            parser=paths.source,
            help="Hessian statistics of the model, or an importance matrix.",
        ),
    ],
    hessian_out: Annotated[
        Optional[Path],
        typer.Option(
            metavar="FILE",
            parser=paths.output,
            help="Also write what --hessian is of the new model, so that nothing has to be run for it.",
        ),
    ] = None,
    threads: options.Threads = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Scale channels before quantizing (cross-layer equalization).

    By powers of two; the model computes the same.
    """
    offload.use()
    from pyquant.rounding.equalize.equalize_model import equalize_model

    convert(
        "equalize",
        lambda progress: equalize_model(
            source, hessian, output, hessian_out=hessian_out, threads=threads, force=force, progress=progress
        ),
        json,
        _lines,
    )


def _lines(result: dict[str, Any]) -> dict[str, str]:
    lines = {
        "channels": f"{result['n_channels']:,}, of which {result['n_scaled']:,} have another scale",
        "changed by it": f"KLD {result['kld']:.2g} on random tokens",
    }
    if result["left_out"]:
        lines["left out"] = f"channels that enter {', '.join(result['left_out'])}, which change the model"
    if result["hessian"]:
        lines["statistics"] = result["hessian"]
    return lines
