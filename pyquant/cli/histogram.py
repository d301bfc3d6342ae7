"""`pyquant histogram`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyquant.cli import options
from pyquant.cli.groups import grouped
from pyquant.cli.output import percent, print_table, remark, show
from pyquant.cli.progress import progress_bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@grouped
def histogram(
    *,
    model: options.AnyModel,
    mode: options.ModeOptions,
    threads: options.Threads = None,
    drawing: options.Drawing,
    json: options.Json = False,
) -> None:
    """Count codes and runs of zeros, and draw them.

    Of the whole model and of each tensor.

    For an unquantized model --mode says through which quantizer to look; nothing is written.
    """
    from pyquant.inspect.histogram import count_codes

    drawing.check()
    with progress_bar("histogram") as progress:
        counted = count_codes(model, mode.chosen(), threads=threads, progress=progress)

    def figure() -> Figure:
        from pyquant.inspect.figures.codes import histogram_figure

        return histogram_figure(counted)

    with drawing.beside(figure):
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
