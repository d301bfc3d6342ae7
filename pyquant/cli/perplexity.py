"""`pyquant perplexity`."""

from __future__ import annotations

from typing import Any

from pyquant.cli import options
from pyquant.cli.groups import grouped
from pyquant.cli.offload import OffloadOptions
from pyquant.cli.output import print_table, show
from pyquant.cli.progress import count_bar
from pyquant.errors import PyquantError


@grouped
def perplexity(
    *,
    models: options.AnyModels,
    text: options.TextFile,
    ctx: options.Ctx = 512,
    chunks: options.Chunks = None,
    threads: options.Threads = None,
    offload: OffloadOptions,
    json: options.Json = False,
) -> None:
    """Measure perplexity on a text, as llama-perplexity does."""
    offload.use()
    from pyquant.evaluate.perplexity import measure_perplexity
    from pyquant.models.model_file import open_model

    results: list[dict[str, Any]] = []
    opened = [open_model(model) for model in models]  # one that cannot be read fails before others have run
    try:
        for model in opened:
            with count_bar(model.path.name) as progress:
                measured = measure_perplexity(
                    model, text, n_ctx=ctx, n_chunks=chunks, threads=threads, progress=progress
                )
            results.append(measured.to_json())
    except (PyquantError, KeyboardInterrupt):
        if results:
            _show(results, json)
        raise
    _show(results, json)


def _show(results: list[dict[str, Any]], json: bool) -> None:
    show({"schema": "pyquant.perplexity/1", "results": results}, json, _print, keep=True)


def _print(result: dict[str, Any]) -> None:
    print_table(
        ["model", "perplexity", "+/-", "tokens scored", "chunks", "tokens/s"],
        [
            [
                r["model"],
                f"{r['ppl']:.4f}",
                f"{r['error']:.4f}",
                f"{r['n_tokens']:,}",
                f"{r['n_chunks']} x {r['n_ctx']}",
                f"{r['tokens_per_second']:,.0f}",
            ]
            for r in result["results"]
        ],
    )
