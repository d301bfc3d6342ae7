"""`pyquant pack`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pyquant.cli import options, paths
from pyquant.cli.conversion import convert
from pyquant.cli.output import number, print_table, size


def pack(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL.gguf", parser=paths.source, help="Model in any types; shards one by one."
        ),
    ],
    output: Annotated[
        Path, typer.Argument(metavar="OUT.pqz", parser=paths.output, help="Packed file to write.")
    ],
    threads: options.Threads = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Store a GGUF with entropy-coded weights, without loss.

    Commands read the .pqz file as they read the GGUF.
    """
    from pyquant.models.pqz.pack import pack_model

    convert(
        "pack",
        lambda progress: pack_model(source, output, force=force, threads=threads, progress=progress),
        json,
        lambda result: {"bits per weight": f"{number(result['bits_per_weight'], '.3f')} of the whole file"},
        _print_streams,
    )


def _print_streams(result: dict[str, Any]) -> None:
    print_table(
        ["type", "bytes of", "before", "coded", "entropy"],
        [
            [
                use["type"] or "metadata",
                use["content"],
                size(use["n_bytes"]),
                size(use["coded_bytes"]),
                size(use["entropy_bytes"]),
            ]
            for use in result["streams"]
        ],
        labels=2,
    )
