"""`pyquant dequantize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pyquant.cli import options, paths
from pyquant.cli.conversion import convert
from pyquant.cli.groups import grouped
from pyquant.cli.output import remark


@grouped
def dequantize(
    *,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL.gguf",
            parser=paths.source,
            help="Quantized model, GGUF or pqz; of a split model the first shard.",
        ),
    ],
    output: options.Output,
    shards: options.Shards,
    type_: Annotated[
        str, typer.Option("--type", metavar="F16|BF16|F32", help="What its weights are stored as.")
    ] = "F16",
    threads: options.Threads = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Write a quantized model's weights as F16, BF16 or F32."""
    from pyquant.rounding.dequantize import dequantize_model

    split = shards.read(output)
    result = convert(
        "dequantize",
        lambda progress: dequantize_model(
            source, output, type_.upper(), threads=threads, force=force, split=split, progress=progress
        ),
        json,
        _lines,
    )
    if result["tensors"]:
        types = ", ".join(result["tensors"])
        remark(f"its weights are what {types} left of them: what is quantized from it has that error as well")
    else:
        remark(f"{source} has no quantized tensors")


def _lines(result: dict[str, Any]) -> dict[str, str]:
    tensors = ", ".join(f"{n} {type_}" for type_, n in result["tensors"].items())
    lines = {"tensors": f"{tensors or 'none'} -> {result['type']}"}
    if result["rmse"] is not None:
        lines["RMSE of rounding"] = f"{result['rmse']:.3g}"
    return lines
