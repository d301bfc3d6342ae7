"""`pyquant histogram`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from pyquant.cli import options, paths
from pyquant.cli.output import percent, print_table, remark, show
from pyquant.cli.progress import progress_bar


def histogram(
    model: options.AnyModel,
    mode: options.ModeName = None,
    scheme: options.SchemeFile = None,
    set_: options.Settings = None,
    table: options.TableName = None,
    radius: options.Radius = None,
    config: options.Config = None,
    pure: options.Pure = None,
    imatrix: options.Imatrix = None,
    tensors: options.Tensors = None,
    threads: options.Threads = None,
    plot: Annotated[
        Optional[Path],
        typer.Option(metavar="FILE", parser=paths.output, help="Draw it: a .png, .svg or .pdf file."),
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Count codes and runs of zeros, of the whole model and each tensor.

    For an unquantized model --mode says through which quantizer to look; nothing is written.
    """
    from pyquant.inspect.histogram import count_codes

    threads = options.threads_from(config, threads)
    chosen = options.mode_from_options(
        config, scheme=scheme, set_=set_, mode=mode, table=table, radius=radius, pure=pure,
        imatrix=imatrix, tensors=tensors,
    )  # fmt: skip
    if plot:
        from pyquant.inspect.figures.style import check_figure

        check_figure(plot, sources=[], force=force)
    with progress_bar("histogram") as progress:
        counted = count_codes(model, chosen, threads=threads, progress=progress)
    if plot:
        from pyquant.inspect.figures.codes import histogram_figure
        from pyquant.inspect.figures.style import save_figure

        save_figure(histogram_figure(counted), plot)
        remark(f"drawn to {plot}")
    show(counted.to_json(), json, _print, keep=True)


def _print(result: dict[str, Any]) -> None:
    for total in result["totals"]:
        runs, zero = total["zero_runs"], f"code {total['zero_code']}, value {total['zero_value']}"
        bits = f"{total['entropy']:.4f} bits per code"
        chance = f"{percent(runs['geometric'][0])} if zeros came by chance"
        print(f"{total['type']}: {total['n_codes']:,} codes in {result['model']}")
        print(f"  entropy       {bits}, {total['entropy_bits_per_weight']:.4f} per weight with scales")
        print(f"  zeros         {percent(total['zero_share'])} ({zero})")
        print(f"  single zeros  {percent(runs['shares'][0])} of {sum(runs['counts']):,} runs; {chance}")
        if len(total["codes"]) <= 16:
            print_table(
                ["code", "value", "count", "share"],
                [
                    [str(code["code"]), str(code["value"]), f"{code['count']:,}", percent(code["share"])]
                    for code in total["codes"]
                ],
            )
        print_table(
            ["zero run", "count", "share", "by chance"],
            [
                [length, f"{count:,}", percent(share), percent(chance)]
                for length, count, share, chance in zip(
                    runs["lengths"], runs["counts"], runs["shares"], runs["geometric"]
                )
            ],
        )
    if result["skipped"]:
        types = ", ".join(sorted(set(result["skipped"].values())))
        remark(f"not counted: {len(result['skipped'])} tensors of types {types}")
