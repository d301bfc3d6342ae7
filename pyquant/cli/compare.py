"""`pyquant compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from pyquant.cli import options
from pyquant.cli.output import count_bar, parse_size, print_json, print_table, remark


def compare(
    base: Annotated[Path, typer.Argument(metavar="BASE.gguf", help="The model to measure from.")],
    models: Annotated[list[Path], typer.Argument(metavar="MODEL.gguf...")],
    text: options.TextFile,
    ctx: options.Ctx = 512,
    chunks: options.Chunks = None,
    threads: options.Threads = None,
    budget_memory: Annotated[
        Optional[str], typer.Option(metavar="SIZE", help="Refuse what would take more, such as 12GB.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Perplexity and divergence of models from a base, which runs once, without a file of logits."""
    from pyquant.evaluate.compare import compare_models as run

    budget = parse_size("budget-memory", budget_memory) if budget_memory else None
    with count_bar("comparing") as progress:
        found = run(
            base, models, text, n_ctx=ctx, n_chunks=chunks, threads=threads, budget=budget, progress=progress
        )
    result = found.to_json()
    if json:
        print_json(result)
    else:
        _print(result)


def _print(result: dict[str, Any]) -> None:
    base, floor = result["base"], result["noise_floor"]
    rows = [[base["model"], f"{base['perplexity']:.4f} ± {base['perplexity_error']:.4f}", "", "", "", ""]]
    for one in result["candidates"]:
        kld, change, top = one["kld"], one["probability_change"], one["same_top"]
        rows.append(
            [
                one["model"],
                f"{one['perplexity']:.4f} ± {one['perplexity_error']:.4f}",
                f"{100 * one['ratio'] - 100:+.2f} ± {100 * one['ratio_error']:.2f}",
                f"{kld['mean']:.6f} ± {kld['error']:.6f}",
                f"{100 * change['rms']:.3f} ± {100 * change['rms_error']:.3f}",
                f"{100 * top['share']:.2f} ± {100 * top['error']:.2f}",
            ]
        )
    print_table(["model", "perplexity", "PPL ratio %", "mean KLD", "RMS Δp %", "same top %"], rows)
    remark(f"{result['n_tokens']:,} tokens in {result['n_chunks']} chunks of {result['n_ctx']}")
    remark(f"noise floor: the base computed in other portions has a KLD of {floor['kld']:.1e} from itself")
