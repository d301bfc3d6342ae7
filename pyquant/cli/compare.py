"""`pyquant compare`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from pyquant.cli import options, paths
from pyquant.cli.output import print_table, remark, show
from pyquant.cli.progress import count_bar


def compare(
    base: Annotated[
        Path, typer.Argument(metavar="BASE.gguf", parser=paths.source, help="The model to measure from.")
    ],
    models: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL.gguf", parser=paths.source, help="Models with the same vocabulary."),
    ],
    text: options.TextFile,
    ctx: options.Ctx = 512,
    chunks: options.Chunks = None,
    threads: options.Threads = None,
    budget_memory: Annotated[
        Optional[str],
        typer.Option(
            metavar="SIZE", help="Refuse what would take more memory, such as 12GB; default: no bound."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Measure the KLD and perplexity of models beside their base.

    The base runs once, and its logits are kept while others run.
    """
    from pyquant.evaluate.compare import compare_models
    from pyquant.fit.target import parse_size

    budget = parse_size("budget-memory", budget_memory) if budget_memory else None
    with count_bar("comparing") as progress:
        comparison = compare_models(
            base, models, text, n_ctx=ctx, n_chunks=chunks, threads=threads, budget=budget, progress=progress
        )
    show(comparison.to_json(), json, print_comparison, keep=True)


def print_comparison(result: dict[str, Any]) -> None:
    """Print models beside their base."""
    base, floor = result["base"], result["noise_floor"]
    rows = [[*_beginning(base), "", "", "", "", ""]]
    for candidate in result["candidates"]:
        kld, change, top = candidate["kld"], candidate["probability_change"], candidate["same_top"]
        accepted = candidate["expected_acceptance"]
        rows.append(
            [
                *_beginning(candidate),
                f"{100 * candidate['ratio'] - 100:+.2f} ± {100 * candidate['ratio_error']:.2f}",
                f"{kld['mean']:.6f} ± {kld['error']:.6f}",
                f"{100 * change['rms']:.3f} ± {100 * change['rms_error']:.3f}",
                f"{100 * top['share']:.2f} ± {100 * top['error']:.2f}",
                f"{100 * accepted['share']:.2f} ± {100 * accepted['error']:.2f}",
            ]
        )
    measures = ["perplexity", "PPL ratio %", "mean KLD", "RMS Δp %", "same top %", "expected acceptance %"]
    print_table(["model", "bits", *measures], rows)
    for line in _warnings(result["candidates"]):
        remark(line)
    remark(f"{result['n_tokens']:,} tokens in {result['n_chunks']} chunks of {result['n_ctx']}")
    remark(f"noise floor: the base computed in other portions has a KLD of {floor['kld']:.1e} from itself")


def _beginning(model: dict[str, Any]) -> list[str]:
    perplexity = f"{model['perplexity']:.4f} ± {model['perplexity_error']:.4f}"
    return [model["model"], f"{model['bits']:.2f}", perplexity]


def _warnings(candidates: list[dict[str, Any]]) -> Iterator[str]:
    """Say which models are of no use, and which are larger than a better one."""
    from pyquant.evaluate.kld import BROKEN

    for candidate in candidates:
        if candidate["ratio"] > BROKEN:
            times = f"{candidate['ratio']:.3g} times the base's"
            yield f"{candidate['model']} is of no use: its perplexity is {times}"
        if (peer := candidate["dominated_by"]) is not None:
            yield f"{candidate['model']} is dominated by {peer}: larger, and a higher KLD"
