"""`pyquant speed`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pyquant import limits
from pyquant.cli import options, paths
from pyquant.cli.groups import grouped
from pyquant.cli.number import number_option
from pyquant.cli.offload import OffloadOptions
from pyquant.cli.output import made_by, made_of, print_table, show, size
from pyquant.cli.progress import count_bar


@grouped
def speed(
    *,
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL.gguf", parser=paths.source, help="Models in any types; ratios are to the first."
        ),
    ],
    prompt: Annotated[
        int, number_option(limits.TOKENS, "TOKENS", "Tokens of a prompt, processed at once.")
    ] = 512,
    generate: Annotated[int, number_option(limits.TOKENS, "TOKENS", "Tokens generated one by one.")] = 128,
    rounds: Annotated[int, number_option(limits.ROUNDS, "N", "Measurements of each model, in turns.")] = 5,
    threads: options.Threads = None,
    offload: OffloadOptions,
    json: options.Json = False,
) -> None:
    """Measure tokens per second of models, in turns."""
    offload.use()
    from pyquant.evaluate.speed import measure_speed
    from pyquant.models.model_file import open_model

    opened = [open_model(path) for path in models]
    files = made_of(opened)
    with count_bar("measuring", "tests") as progress:
        report = measure_speed(
            opened,
            n_prompt=prompt,
            n_generate=generate,
            rounds=rounds,
            threads=threads,
            progress=progress,
        )
    show({**report.to_json(), "made_by": made_by(), "made_of": files}, json, _print, keep=True)


def _print(result: dict[str, Any]) -> None:
    rows = []
    for model in result["models"]:
        row = [model["model"], size(model["n_bytes"])]
        for test in (model["prompt"], model["generation"]):
            row.append(f"{test['tokens_per_second']:,.1f} ({test['low']:,.1f}..{test['high']:,.1f})")
            row.append(f"{test['ratio']:.2f} ({test['ratio_low']:.2f}..{test['ratio_high']:.2f})")
        rows.append(row)
    prompt, generate = result["n_prompt"], result["n_generate"]
    print_table(
        ["model", "size", f"prompt {prompt}, t/s", "ratio", f"generate {generate}, t/s", "ratio"], rows
    )
