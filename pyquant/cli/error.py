"""`pyquant error`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from pyquant.cli import options, paths
from pyquant.cli.groups import grouped
from pyquant.cli.output import number, percent, print_lines, print_table, show
from pyquant.cli.progress import progress_bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@grouped
def error(
    *,
    base: Annotated[
        Path, typer.Argument(metavar="BASE.gguf", parser=paths.source, help="The model to measure from.")
    ],
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL.gguf", parser=paths.source, help="Model of the same architecture, in any types."
        ),
    ],
    imatrix: Annotated[
        Optional[Path],
        typer.Option(
            metavar="FILE",
            parser=paths.source,
            help="Importance matrix from llama-imatrix: weigh errors by it too.",
        ),
    ] = None,
    threads: options.Threads = None,
    drawing: options.Drawing,
    json: options.Json = False,
) -> None:
    """Show the error of each tensor between two models."""
    from pyquant.inspect.error_map import measure_error

    drawing.check()
    with progress_bar("error") as progress:
        report = measure_error(base, model, imatrix=imatrix, threads=threads, progress=progress)

    def figure() -> Figure:
        from pyquant.inspect.figures.error_map import error_figure

        return error_figure(report)

    with drawing.beside(figure):
        show(report.to_json(), json, _print, keep=True)


def _print(result: dict[str, Any]) -> None:
    different = [t for t in result["tensors"] if not t["identical"]]
    weighted = ["weighted dB"] if result["imatrix"] else []
    if different:
        print_table(
            ["tensor", "type", "RMSE", "dB", *weighted, "cosine", "largest", "at", "zeros", "entropy"],
            [_row(t, bool(weighted)) for t in different],
            labels=2,
        )
    for name, text in _summary(result):
        print_lines({name: text})


def _row(tensor: dict[str, Any], weighted: bool) -> list[str]:
    return [
        tensor["name"],
        tensor["type"],
        number(tensor["rmse"]),
        number(tensor["snr_db"], ".2f"),
        *([number(tensor["weighted_snr_db"], ".2f")] if weighted else []),
        number(tensor["cosine"], ".6f"),
        number(tensor["largest_error"]),
        ",".join(map(str, tensor["largest_error_at"])),
        percent(tensor["zero_share"]),
        number(tensor["entropy"], ".3f"),
    ]


def _summary(result: dict[str, Any]) -> Iterator[tuple[str, str]]:
    total, tensors = result["total"], result["tensors"]
    if result["identical"]:
        yield "identical", f"all {len(tensors)} tensors, and the metadata"
        return
    db, cosine = number(total["snr_db"], ".2f"), number(total["cosine"], ".6f")
    yield "error", f"RMSE {number(total['rmse'])}, {db} dB, cosine {cosine}"
    if result["imatrix"]:
        yield "weighted error", f"{number(total['weighted_snr_db'], '.2f')} dB"
    yield "identical", f"{sum(tensor['identical'] for tensor in tensors)} of {len(tensors)} tensors"
    changes = Counter(f"{t['base_type']} -> {t['type']}" for t in tensors if t["base_type"] != t["type"])
    for change, n in changes.items():
        yield "types", f"{change}: {n} tensors"
    for name in result["only_in_base"]:
        yield "only in base", name
    for name in result["only_in_model"]:
        yield "only in model", name
    for name, why in result["not_compared"].items():
        yield "not compared", f"{name}: {why}"
    for key, values in result["metadata"].items():
        yield "metadata", f"{key}: {values['base'] or 'none'} -> {values['model'] or 'none'}"
