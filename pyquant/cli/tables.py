"""`pyquant tables`: list, show, build and check tables of 16 values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import typer

from pyquant.cli import options, paths
from pyquant.cli.output import print_lines, print_table, show
from pyquant.cli.progress import progress_bar
from pyquant.cli.single_values import Commands
from pyquant.errors import ConfigError

if TYPE_CHECKING:
    from pyquant.schemes.fold_table import Table

app = Commands(help="List, show, build, learn and check codebooks of 16 values.", no_args_is_help=True)

Output = Annotated[
    Optional[Path], options.output_option("TABLE.toml", "The TOML file to write; default: standard output.")
]


@app.command("list")
def list_tables(json: options.Json = False) -> None:
    """List the built-in tables."""
    from pyquant.schemes.fold_table import BUILT_IN

    tables = {name: (make.__doc__ or "").partition("\n")[0] for name, make in BUILT_IN.items()}
    tables["balanced"] = "Equal shares of the codes of the model at hand; `tables build` stores one."
    show({"schema": "pyquant.tables.list/1", "tables": tables}, json, lambda r: print_lines(r["tables"]))


@app.command("show")
def show_table(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", parser=paths.source_or_word, help="A built-in table, or a TOML file."
        ),
    ],
    model: Annotated[
        Optional[Path],
        typer.Option(
            metavar="MODEL.gguf",
            parser=paths.source,
            help="The model that `balanced` is for; default: the bundled one.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Show a table's 16 ranges of 8-bit codes and their values."""
    shown, by_name = _tables(table, model)
    result = {
        "schema": "pyquant.tables.show/1",
        **_ranges(shown),
        "tables": {name: _ranges(own) for name, own in by_name.items()},
    }
    show(result, json, _print_tables)


def _tables(name: str, model: Path | None = None) -> tuple[Table, dict[str, Table]]:
    from pyquant.schemes.table_set import named_tables

    if name != "balanced":
        if model is not None:
            raise ConfigError("--model: is for TABLE `balanced`, the only one made for a model; drop it")
        return named_tables(name)
    from pyquant.data import model_path
    from pyquant.inspect.histogram import code_counts
    from pyquant.schemes.fold_table import balanced

    return balanced(code_counts(model or model_path())), {}


def _ranges(table: Table) -> dict[str, Any]:
    return {"name": table.name, "values": table.values.tolist(), "lower": table.lower.tolist()}


def _print_tables(result: dict[str, Any]) -> None:
    lower, values = result["lower"], result["values"]
    upper = [*(below - 1 for below in lower[1:]), 127]
    rows = [[str(code), *map(str, row)] for code, row in enumerate(zip(lower, upper, values))]
    print_table(["code", "from", "to", "value"], rows, title=result["name"])
    if result["tables"]:
        rows = [[name, *map(str, own["values"])] for name, own in result["tables"].items()]
        print_table(["tensors", *map(str, range(16))], rows, title="Values of codes in tables of their own")


@app.command()
def check(
    tables: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE...", parser=paths.source_or_word, help="Tables to check: TOML files, or built-in."
        ),
    ],
    json: options.Json = False,
) -> None:
    """Check whether tables are sound.

    Exit status 2 at the first that is not.
    """
    checked = {name: _tables(name) for name in tables}
    result = {
        "schema": "pyquant.tables.check/1",
        "tables": {name: table.name for name, (table, _) in checked.items()},
        "more": {name: list(by_name) for name, (_, by_name) in checked.items() if by_name},
    }
    show(result, json, _print_checked)


def _print_checked(result: dict[str, Any]) -> None:
    for path, name in result["tables"].items():
        more = len(result["more"].get(path, []))
        print(f"{path}: {name}, 16 values{f' and {more} times 16 more' if more else ''}, sound")


@app.command()
def build(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            parser=paths.source,
            help="An unquantized or Q8_0 model, or a histogram of Q8_0 codes as JSON.",
        ),
    ],
    output: Output = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="The table's name in the file.")] = "balanced",
    threads: options.Threads = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Build a balanced table from a model's codes or a stored histogram."""
    from dataclasses import replace

    from pyquant.inspect.histogram import code_counts
    from pyquant.schemes.fold_table import balanced, check_name

    _check(output, force)
    check_name("--name", name)
    with progress_bar("counting") as progress:
        counts = code_counts(source, threads=threads, progress=progress)
    _give(replace(balanced(counts), name=name).to_toml(), "build", output, force, json)


@app.command()
def learn(
    model: options.FloatModel,
    output: Output = None,
    per: Annotated[
        Literal["model", "kind", "tensor"],
        typer.Option(help="One table for the model, for each kind of tensor, or for each tensor."),
    ] = "model",
    hessian: Annotated[
        Optional[Path],
        typer.Option(metavar="FILE", parser=paths.source, help="Weigh errors by what enters the matrices."),
    ] = None,
    threads: options.Threads = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Learn tables for mode `table` from a model's weights."""
    from pyquant.fit.learn_tables import learn_tables

    _check(output, force)
    with progress_bar("learning") as progress:
        tables = learn_tables(model, per=per, hessian=hessian, threads=threads, progress=progress)
    _give(tables.to_toml(), "learn", output, force, json)


def _check(output: Path | None, force: bool) -> None:
    # An output that cannot be is refused before the work. The inputs are protected: see paths.py.
    from pyquant.files.output_file import check_output

    if output is not None:
        check_output(output, sources=[], force=force)


def _give(toml: str, command: str, output: Path | None, force: bool, json: bool) -> None:
    from pyquant.files.output_file import write_bytes

    if output is not None:
        write_bytes(output, toml.encode(), sources=[], force=force)
    result = {
        "schema": f"pyquant.tables.{command}/1",
        "output": None if output is None else str(output),
        "toml": toml,
    }
    show(result, json, _print_made, keep=True)


def _print_made(result: dict[str, Any]) -> None:
    if result["output"] is None:
        print(result["toml"], end="")
    else:
        print(f"written to {result['output']}")
