"""`pyquant unpack`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pyquant.cli import options, paths
from pyquant.cli.output import print_lines, show, size
from pyquant.cli.progress import progress_bar


def unpack(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", parser=paths.source, help="Made by `pyquant pack`, or with --store q4_t."
        ),
    ],
    output: Annotated[
        Path, typer.Argument(metavar="OUT.gguf", parser=paths.output, help="GGUF file to write.")
    ],
    threads: options.Threads = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Write the GGUF that a file was packed from, bit for bit; or 4-bit codes of tables as the stock type
    that they equal, for any llama.cpp."""
    from pyquant.models.pqz.pqz_file import is_pqz
    from pyquant.models.pqz.unpack import unpack_model

    with progress_bar("unpack") as progress:
        if is_pqz(source):
            result = unpack_model(source, output, force=force, threads=threads, progress=progress).to_json()
        else:
            from pyquant.models.unpack_q4_t import unpack_q4_t  # what it needs takes a while to load

            result = unpack_q4_t(source, output, force=force, progress=progress).to_json()
    show(result, json, _print)


def _print(result: dict[str, Any]) -> None:
    lines = {"size": f"{size(result['source_bytes'])} -> {size(result['output_bytes'])}"}
    if "sha256" in result:
        lines["SHA-256"] = result["sha256"]
    rate = result["output_bytes"] / result["seconds"]
    lines["time"] = f"{result['seconds']:.2f} s ({size(rate)}/s)"
    print_lines(lines | {"written to": result["output"]})
