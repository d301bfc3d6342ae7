"""`pyquant tables`: list, show, build and check tables of 16 values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from pyquant.cli import options
from pyquant.cli.output import print_json, print_table, progress_bar

app = typer.Typer(help="List, show, build and check the tables of mode q8_table.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="TABLE", help="A built-in table, or a TOML file.")]


@app.command("list")
def list_tables(json: options.Json = False) -> None:
    """The built-in tables."""
    from pyquant.tables.fold_table import BUILT_IN

    about = {name: make.__doc__.splitlines()[0] for name, make in BUILT_IN.items()}
    about["balanced"] = "Equal shares of the codes of the model at hand; `tables build` stores one."
    if json:
        print_json(about)
    else:
        print_table(["table", "what it is"], [[name, text] for name, text in about.items()])


@app.command()
def show(table: Name, json: options.Json = False) -> None:
    """The 16 ranges of 8-bit codes of a table, and what each decodes to."""
    from pyquant.tables.fold_table import named_table

    found = named_table(table)
    ranges = list(zip(found.lower.tolist(), [*(found.lower[1:] - 1).tolist(), 127], found.values.tolist()))
    if json:
        print_json({"name": found.name, "values": found.values.tolist(), "lower": found.lower.tolist()})
        return
    print_table(
        ["code", "from", "to", "value"],
        [[str(code), *map(str, row)] for code, row in enumerate(ranges)],
        title=found.name,
    )


@app.command()
def check(tables: Annotated[list[Path], typer.Argument(metavar="TABLE.toml...")]) -> None:
    """Say whether table files are sound; exit status 2 at the first that is not."""
    from pyquant.tables.fold_table import read_table

    for path in tables:
        print(f"{path}: {read_table(path).name}, 16 values, sound")


@app.command()
def build(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", help="An unquantized or Q8_0 model, or a histogram of Q8_0 codes as JSON."
        ),
    ],
    output: Annotated[
        Optional[Path], typer.Option("--output", "-o", help="The TOML file to write; default: stdout.")
    ] = None,
    name: Annotated[str, typer.Option(help="The table's name in the file.")] = "balanced",
    threads: options.Threads = None,
    force: options.Force = False,
) -> None:
    """Build a balanced table from a model's codes or a stored histogram."""
    from dataclasses import replace

    from pyquant.inspect.histogram import code_counts
    from pyquant.tables.fold_table import balanced

    with progress_bar("counting") as progress:
        counts = code_counts(source, threads=threads, progress=progress)
    _give(replace(balanced(counts), name=name).to_toml(), output, source, force)


@app.command()
def learn(
    model: Annotated[Path, typer.Argument(metavar="MODEL.gguf", help="F32, F16 or BF16.")],
    output: Annotated[
        Optional[Path], typer.Option("--output", "-o", help="The TOML file to write; default: stdout.")
    ] = None,
    per: Annotated[str, typer.Option(help="model (one for all), kind (of tensor), or tensor.")] = "model",
    calibration: Annotated[
        Optional[Path], typer.Option(metavar="STATS", help="Weigh errors by what enters the matrices.")
    ] = None,
    threads: options.Threads = None,
    force: options.Force = False,
) -> None:
    """Learn tables for mode `table` from a model's weights."""
    from pyquant.errors import ConfigError
    from pyquant.files.output_file import check_output
    from pyquant.fit.learn_tables import learn_tables

    if per not in ("model", "kind", "tensor"):
        raise ConfigError(f"per: {per!r} is none of model, kind, tensor")
    if output is not None:
        check_output(output, sources=[model], force=force)
    with progress_bar("learning") as progress:
        tables = learn_tables(model, per=per, calibration=calibration, threads=threads, progress=progress)
    _give(tables.to_toml(), output, model, force)


def _give(text: str, output: Path | None, source: Path, force: bool) -> None:
    from pyquant.files.output_file import write_bytes

    if output is None:
        print(text, end="")
    else:
        write_bytes(output, text.encode(), sources=[source], force=force)
        print(f"written to {output}")
