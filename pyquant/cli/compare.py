"""`pyquant compare`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from pyquant.cli import options, paths
from pyquant.cli.output import made_by, print_table, remark, show
from pyquant.cli.progress import count_bar

if TYPE_CHECKING:
    from pyquant.llama.cache_types import CacheTypes


def compare(
    base: Annotated[
        Path, typer.Argument(metavar="BASE.gguf", parser=paths.source, help="The model to measure from.")
    ],
    models: Annotated[
        Optional[list[Path]],
        typer.Argument(
            metavar="[MODEL.gguf]...",
            parser=paths.source,
            help="Models with the same vocabulary.",
            show_default=False,
        ),
    ] = None,
    *,
    text: options.TextFile,
    ctx: options.Ctx = 512,
    chunks: options.Chunks = None,
    cache_type_k: options.CacheTypeK = None,
    cache_type_v: options.CacheTypeV = None,
    shares: Annotated[
        bool,
        typer.Option(
            "--shares",
            help="Say what part of each KLD weights, rounded activations and the cache have; runs each model "
            "once more, dequantized to F16 in the folder for temporary files.",
        ),
    ] = False,
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

    caches = _caches(cache_type_k or [], cache_type_v or [])
    budget = parse_size("budget-memory", budget_memory) if budget_memory else None
    models = models or []
    with count_bar("comparing") as progress:
        comparison = compare_models(
            base,
            models,
            text,
            n_ctx=ctx,
            n_chunks=chunks,
            caches=caches,
            threads=threads,
            budget=budget,
            progress=progress,
        )
    result = {**comparison.to_json(), "made_by": made_by()}
    if shares:
        from pyquant.inspect.kld_shares import kld_shares

        with count_bar("splitting") as progress:
            parts = kld_shares(comparison, base, models, text, threads=threads, progress=progress)
        result["shares"] = [part.to_json() for part in parts]
    show(result, json, print_comparison, keep=True)


def _caches(keys: list[str], values: list[str]) -> list[CacheTypes]:
    """Pair types of keys with types of values, in their order."""
    from pyquant.llama.cache_types import CacheTypes

    return [CacheTypes(*pair) for pair in zip_longest(keys, values, fillvalue="f16")]


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
    if "shares" in result:
        _print_shares(result["shares"])
    for line in _warnings(result["candidates"]):
        remark(line)
    remark(f"{result['n_tokens']:,} tokens in {result['n_chunks']} chunks of {result['n_ctx']}")
    remark(f"noise floor: the base computed in other portions has a KLD of {floor['kld']:.1e} from itself")


def _print_shares(shares: list[dict[str, Any]]) -> None:
    """Print which part of a KLD comes of what."""
    rows = []
    for own in shares:
        parts = [own["weights"], own["activations"], own["cache"], own["total"]]
        rows.append([own["model"], *(_part(part, own["total"]["kld"]) for part in parts)])
    print_table(["mean KLD by cause", "weights", "8-bit activations", "cache", "all"], rows)


def _part(part: dict[str, float] | None, total: float) -> str:
    if part is None:
        return "-"
    share = f" ({100 * part['kld'] / total:.1f} %)" if total else ""
    return f"{part['kld']:.6f} ± {part['error']:.6f}{share}"


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
