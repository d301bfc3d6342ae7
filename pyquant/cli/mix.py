"""`pyquant mix`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from pyquant import limits
from pyquant.cli import options, paths
from pyquant.cli.groups import grouped
from pyquant.cli.mix_table import print_types_of, trials_of
from pyquant.cli.number import number_option
from pyquant.cli.offload import OffloadOptions
from pyquant.cli.output import print_lines, remark, show
from pyquant.cli.progress import phases, progress_bar

GUESS = "guess"


@grouped
def mix(
    *,
    model: options.FloatModel,
    hessian: options.HessianFile,
    text: options.TextFiles,
    output: Annotated[Path, options.output_option("RECIPE.toml", "File for the types.")],
    target: options.WantedSize,
    types: Annotated[
        Optional[str],
        typer.Option(
            metavar="TYPE,...",
            help="Use only these types, such as Q4_0,Q8_0; default: those of GPTQ but FP4, IQ2 and IQ3.",
        ),
    ] = None,
    sensitivity: Annotated[
        Optional[str],
        typer.Option(
            metavar="FILE.toml|guess",
            parser=paths.source_or_word,
            help="What `pyquant sensitivity` measured, or guess; default: by gradients in the statistics, "
            "else measure.",
        ),
    ] = None,
    equalize: Annotated[
        bool,
        typer.Option("--equalize", help="Find types for `quantize --equalize`, which scales channels first."),
    ] = False,
    gguf: Annotated[
        Optional[Path],
        typer.Option(
            metavar="OUT.gguf",
            parser=paths.output,
            help="Also quantize the model by the recipe.",
        ),
    ] = None,
    error_propagation: options.ErrorPropagation = None,
    ctx: options.Ctx = 512,
    chunks: Annotated[
        int,
        number_option(limits.CHUNKS, "N", "Chunks of each text that KLD is measured on.", "--chunks"),
    ] = 8,
    threads: options.Threads = None,
    offload: OffloadOptions,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Find each tensor's type for the least KLD at a size.

    The recipe is for `quantize --recipe`; `quantize --target-size` does both.
    """
    offload.use()
    from pyquant.calibration.sensitivity_file import Sensitivity
    from pyquant.errors import ConfigError
    from pyquant.files.kept import checkpoint_of
    from pyquant.files.output_file import check_output, write_bytes
    from pyquant.fit.mix_model import mix_model
    from pyquant.fit.mixtures import read_types
    from pyquant.models.model_file import ModelFile
    from pyquant.rounding.quantize_model import quantize_model
    from pyquant.schemes.settings import make_mode

    wanted = target.read()
    if error_propagation is not None and gguf is None:
        raise ConfigError("--error-propagation: says how --gguf is made; give it too")
    measured = None if sensitivity in (None, GUESS) else Sensitivity.read(str(sensitivity))
    check_output(output, sources=[], force=force)
    if gguf is not None:
        check_output(gguf, sources=ModelFile(model).paths, force=force)
    with checkpoint_of(output, "measured sensitivities") as checkpoint, phases() as progress:
        found = mix_model(
            model,
            hessian,
            text,
            wanted,
            sensitivity="guess" if sensitivity == GUESS else measured,
            allowed=read_types(types),
            equalize=equalize,
            n_ctx=ctx,
            n_chunks=chunks,
            threads=threads,
            checkpoint=checkpoint,
            progress=progress,
            tell=remark,
        )
        write_bytes(output, found.recipe.to_toml().encode(), sources=[], force=force)
    if gguf is not None:
        known = {"hessian": hessian, "equalize": equalize, "error_propagation": error_propagation}
        mode = make_mode({"mode": "recipe", "recipe": output, **known})
        with progress_bar(gguf.name) as bar:
            quantize_model(model, gguf, mode, threads=threads, force=force, progress=bar, tell=remark)
    made = {"gguf": str(gguf)} if gguf else {}
    show({**found.to_json(), "output": str(output), **made}, json, _print)
    if found.fell_back and found.stock:
        remark(f"no mixture that was found is better than {found.stock.name}: the recipe is that one")


def _print(result: dict[str, Any]) -> None:
    print_types_of(result)
    lines = trials_of(result)
    lines["with types of any bits"] = f"{result['any_bits']:.0%} of this are predicted to be left"
    seconds = ", ".join(f"{what} {spent:.0f}" for what, spent in result["seconds"].items())
    files = ", ".join(result[key] for key in ("output", "gguf") if key in result)
    print_lines({**lines, "recipe": result["name"], "seconds": seconds, "written to": files})
