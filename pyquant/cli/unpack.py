"""`pyquant unpack`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyquant.cli import options, paths
from pyquant.cli.conversion import convert

if TYPE_CHECKING:
    from pyquant.models.conversion import Converted
    from pyquant.models.progress import Progress


def unpack(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", parser=paths.source, help="Made by `pyquant pack`, or with --store q4_t."
        ),
    ],
    output: options.Output,
    threads: options.Threads = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Write the GGUF that a .pqz file was packed from.

    Bit for bit; of a GGUF in Q4_T the stock type that equals its codes, for any llama.cpp.
    """
    from pyquant.models.pqz.pqz_file import is_pqz
    from pyquant.models.pqz.unpack import unpack_model

    def work(progress: Progress) -> Converted:
        if is_pqz(source):
            return unpack_model(source, output, force=force, threads=threads, progress=progress)
        from pyquant.models.unpack_q4_t import unpack_q4_t  # what it needs takes a while to load

        return unpack_q4_t(source, output, force=force, progress=progress)

    convert(
        "unpack",
        work,
        json,
        lambda result: {"SHA-256": result["sha256"]} if "sha256" in result else {},
    )
