"""`pyquant speed`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyquant.cli import options
from pyquant.cli.output import count_bar, print_json, print_table, size


def speed(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL.gguf...", help="Ratios are to the first.")],
    prompt: Annotated[int, typer.Option(help="Tokens of a prompt, processed at once.")] = 512,
    generate: Annotated[int, typer.Option(help="Tokens generated one by one.")] = 128,
    rounds: Annotated[int, typer.Option(help="Measurements of each model, in turns.")] = 5,
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Tokens per second of models, measured in turns: prompts and generation."""
    from pyquant.evaluate.speed import measure_speed as run

    with count_bar("measuring", "tests") as progress:
        found = run(
            models,
            n_prompt=prompt,
            n_generate=generate,
            rounds=rounds,
            threads=threads,
            progress=progress,
        )
    result = found.to_json()
    if json:
        print_json(result)
        return
    rows = []
    for one in result["models"]:
        row = [one["model"], size(one["n_bytes"])]
        for test in (one["prompt"], one["generation"]):
            row.append(f"{test['tokens_per_second']:,.1f} ({test['low']:,.1f}..{test['high']:,.1f})")
            row.append(f"{test['ratio']:.2f} ({test['ratio_low']:.2f}..{test['ratio_high']:.2f})")
        rows.append(row)
    print_table(
        ["model", "size", f"prompt {prompt}, t/s", "ratio", f"generate {generate}, t/s", "ratio"], rows
    )
