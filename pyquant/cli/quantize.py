"""`pyquant quantize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pyquant.cli import options
from pyquant.cli.output import number, percent, print_json, print_table, progress_bar, remark, size


def quantize(
    source: Annotated[
        Path,
        typer.Argument(metavar="MODEL.gguf", help="F32, F16 or BF16; of a split model the first shard."),
    ],
    output: Annotated[Path, typer.Argument(metavar="OUT.gguf")],
    mode: options.ModeName = None,
    table: options.TableName = None,
    radius: options.Radius = None,
    store: options.Store = None,
    config: options.Config = None,
    pure: options.Pure = None,
    imatrix: options.Imatrix = None,
    calibration: options.Calibration = None,
    damping: options.Damping = None,
    tensors: options.Tensors = None,
    threads: options.Threads = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say which types and sizes would come out; write nothing.")
    ] = False,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Quantize a model to a GGUF that any llama.cpp runs, or with --store packed pyquant's."""
    from pyquant.errors import ConfigError
    from pyquant.quantize import quantize_model as run

    chosen = options.mode_from_options(
        config, mode=mode, table=table, radius=radius, store=store, pure=pure, imatrix=imatrix,
        calibration=calibration, damping=damping, tensors=tensors, threads=threads,
    )  # fmt: skip
    if chosen is None:
        raise ConfigError("--mode or --config is needed; `pyquant quantize --help` lists the modes")
    with progress_bar(f"{chosen.mode}") as progress:
        report = run(source, output, chosen, force=force, dry_run=dry_run, progress=progress)
    result = report.to_json()
    if json:
        print_json(result)
    else:
        _print(result, dry_run)
    kept = [t for t in result["tensors"] if t["type"] == "F16" != t["source_type"]]
    if kept:
        remark(f"{len(kept)} tensors became F16: no block divides their rows, such as {kept[0]['name']}'s")


def _print(result: dict[str, Any], dry_run: bool) -> None:
    if dry_run:
        print_table(
            ["tensor", "from", "to", "size"],
            [[t["name"], t["source_type"], t["type"], size(t["n_bytes"])] for t in result["tensors"]],
        )
    shown = [f"{key} {value}" for key, value in result["parameters"].items() if key != "table.values"]
    before, after = result["source_bytes"], result["output_bytes"]
    lines = [
        ("mode", ", ".join([result["mode"], *shown])),
        ("size", f"{size(before)} -> {size(after)} ({after / before:.1%})"),
        ("bits per weight", f"{result['bits_per_weight']:.3f}"),
    ]
    if not dry_run:
        lines += [
            ("error", f"RMSE {number(result['rmse'])}, {number(result['snr_db'], '.2f')} dB"),
            ("zero weights", percent(result["zero_share"])),
            ("time", f"{result['seconds']:.2f} s ({size(before / result['seconds'])}/s)"),
        ]
    for name, value in lines:
        print(f"{name:<16} {value}")
    print(f"{'not written' if dry_run else 'written to':<16} {result['output']}")
