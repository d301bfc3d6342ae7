"""`pyquant recipe`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from pyquant.cli import options, paths
from pyquant.cli.output import print_lines, print_table, show

SUFFIX = ".toml"


def recipe(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL.gguf", parser=paths.source, help="Model that it is for.")
    ],
    file: Annotated[
        Path,
        typer.Argument(
            metavar="RECIPE.toml|TYPES.txt",
            parser=paths.source,
            help="Recipe, or what llama-quantize takes as --tensor-type-file.",
        ),
    ],
    output: Annotated[
        Optional[Path], options.output_option("TYPES.txt|RECIPE.toml", "Write it as the other of the two.")
    ] = None,
    base: Annotated[
        Optional[str],
        typer.Option(
            metavar="TYPE",
            help="Type that llama-quantize is given beside TYPES.txt, such as Q5_K_M; default: Q4_K_M.",
        ),
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Check a recipe of tensors' types, and convert it.

    From and to llama-quantize's --tensor-type-file.
    """
    from pyquant.errors import ConfigError
    from pyquant.files.output_file import check_output, write_bytes
    from pyquant.models.model_file import ModelFile
    from pyquant.models.type_policy import quantizable
    from pyquant.rounding.types import choose_types
    from pyquant.schemes.settings import make_mode
    from pyquant.schemes.tensor_types import read_tensor_types, to_tensor_types

    opened = ModelFile(model)
    is_recipe = file.suffix == SUFFIX
    if is_recipe and base is not None:
        raise ConfigError(f"--base: is of TYPES.txt, and {file} says its own")
    if output is not None:
        check_output(output, sources=opened.paths, force=force)
    elif force:
        raise ConfigError("--force: replaces an output; give one with -o")
    if output is not None and is_recipe == (output.suffix == SUFFIX):
        raise ConfigError(f"{output}: {file} becomes the other sort of file: a recipe ends in {SUFFIX}")
    if is_recipe:
        mode = make_mode({"mode": "recipe", "recipe": file})
        chosen = choose_types(opened, mode, has_importance=True).chosen
        types = {name: type_ for name, type_ in chosen.items() if name in quantizable(opened)}
        text = to_tensor_types(types)
    else:
        read = read_tensor_types(file, opened, base or "Q4_K_M")
        types = {name: choice.type for name, choice in read.tensors.items()}
        text = read.to_toml()
    if output is not None:
        write_bytes(output, text.encode(), sources=opened.paths, force=force)
    result = {
        "schema": "pyquant.recipe/1",
        "model": str(model),
        "types": {name: type_.name for name, type_ in types.items()},
        "output": None if output is None else str(output),
    }
    show(result, json, _print)


def _print(result: dict[str, Any]) -> None:
    print_table(["tensor", "type"], [[name, type_] for name, type_ in result["types"].items()])
    if result["output"]:
        print_lines({"written to": result["output"]})
