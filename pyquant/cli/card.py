"""`pyquant card`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from pyquant.cli import options, paths
from pyquant.cli.output import print_lines, remark, show
from pyquant.cli.progress import progress_bar


def card(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULT.json...",
            parser=paths.source,
            help="What compare, accuracy and speed printed with --json, of one base.",
        ),
    ],
    output: Annotated[
        Path, options.output_option("README.md", "The card; its figure is beside it, as .kld.png.")
    ],
    license: Annotated[
        Optional[str],
        typer.Option(metavar="NAME", help="A hub's name of the license; default: what the base says."),
    ] = None,
    base_model: Annotated[
        Optional[str], typer.Option(metavar="ORG/MODEL", help="The base's name on a hub.")
    ] = None,
    title: Annotated[
        Optional[str], typer.Option(metavar="TEXT", help="The heading; default: the base's name.")
    ] = None,
    new_type: Annotated[
        Optional[str],
        typer.Option(
            metavar="MODEL.gguf",
            help="Write what llama.cpp asks of a new type instead: perplexity, KLD and CPU speed of this "
            "model beside the others.",
        ),
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Write a hub's model card: tables, KLD over size, recipe, and the files with their SHA-256."""
    from pyquant.card.write import write_card

    with progress_bar("hashing") as progress:
        done = write_card(
            results,
            output,
            license=license,
            base_model=base_model,
            title=title,
            new_type=new_type,
            force=force,
            progress=progress,
        )
    if not done["license"] and new_type is None:
        remark("the card names no license: --license NAME, such as apache-2.0")
    show(done, json, _print)


def _print(done: dict[str, Any]) -> None:
    figure = {"figure": done["figure"]} if done["figure"] else {}
    print_lines(
        {"written to": done["output"], **figure, "files": f"{len(done['files'])}, with their SHA-256"}
    )
