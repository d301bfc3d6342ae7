"""`pyquant unpack`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyquant.cli import options
from pyquant.cli.output import print_json, progress_bar, size


def unpack(
    source: Annotated[Path, typer.Argument(metavar="MODEL.gguf", help="Made with --store packed.")],
    output: Annotated[Path, typer.Argument(metavar="OUT.gguf")],
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Turn packed codes into the stock type that they equal, for any llama.cpp."""
    from pyquant.unpack import unpack_tables

    with progress_bar("unpack") as progress:
        n_bytes = unpack_tables(source, output, force=force, progress=progress)
    if json:
        result = {"schema": "pyquant.unpack/1", "source": str(source), "output": str(output)}
        print_json(result | {"source_bytes": source.stat().st_size, "output_bytes": n_bytes})
    else:
        print(f"size        {size(source.stat().st_size)} -> {size(n_bytes)}")
        print(f"written to  {output}")
