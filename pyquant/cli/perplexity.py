"""`pyquant perplexity`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pyquant.cli import options
from pyquant.cli.output import count_bar, print_json, print_table


def perplexity(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL.gguf...")],
    text: options.TextFile,
    ctx: options.Ctx = 512,
    chunks: options.Chunks = None,
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Perplexity of models on a text, as llama-perplexity has it."""
    from pyquant.evaluate.perplexity import measure_perplexity as run
    from pyquant.files.text import read_text

    read = read_text(text)
    results = []
    for model in models:
        with count_bar(model.name) as progress:
            result = run(model, read, n_ctx=ctx, n_chunks=chunks, threads=threads, progress=progress)
        results.append(result.to_json())
    if json:
        print_json({"schema": "pyquant.perplexity/1", "results": results})
    else:
        _print(results)


def _print(results: list[dict[str, Any]]) -> None:
    print_table(
        ["model", "perplexity", "+/-", "tokens scored", "chunks", "tokens/s"],
        [
            [
                Path(r["model"]).name,
                f"{r['ppl']:.4f}",
                f"{r['error']:.4f}",
                f"{r['n_tokens']:,}",
                f"{r['n_chunks']} x {r['n_ctx']}",
                f"{r['tokens_per_second']:,.0f}",
            ]
            for r in results
        ],
    )
