"""`pyquant compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from pyquant import limits
from pyquant.cli import options, paths
from pyquant.cli.compare_caches import ComparedCaches
from pyquant.cli.compare_table import print_comparisons
from pyquant.cli.compare_texts import ComparedTexts
from pyquant.cli.groups import grouped
from pyquant.cli.offload import OffloadOptions
from pyquant.cli.output import made_by, made_of, show
from pyquant.cli.progress import count_bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@grouped
def compare(
    *,
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
    texts: ComparedTexts,
    ctx: options.Ctx = 512,
    chunks: options.Chunks = None,
    caches: ComparedCaches,
    threads: options.Threads = None,
    budget_memory: Annotated[
        Optional[str],
        typer.Option(
            metavar="SIZE", help="Refuse what would take more memory, such as 12GB; default: no bound."
        ),
    ] = None,
    drawing: options.Drawing,
    offload: OffloadOptions,
    json: options.Json = False,
) -> None:
    """Measure the KLD and perplexity of models beside their base, on one text or several.

    The base runs once, and its logits are kept while others run; with a context of more than 2,048 tokens all
    run side by side. --plot draws KLD by position in the context.
    """
    offload.use()
    from pyquant.errors import ConfigError, PyquantError
    from pyquant.evaluate.compare import compare_texts
    from pyquant.models.model_file import open_model

    drawing.check()
    budget = limits.parse_size("budget-memory", budget_memory) if budget_memory else None
    types = caches.read()
    models = models or []
    if not models and not types:
        raise ConfigError("compare: give a model beside the base, or types of its cache")
    if caches.shares and not models:
        raise ConfigError("--shares: is of models beside the base; give one")
    named = texts.read(base, threads)
    opened = [open_model(path) for path in (base, *models)]
    files = made_of(opened)
    every_position = drawing.plot is not None
    with count_bar("comparing") as progress:
        comparisons = compare_texts(
            opened[0],
            opened[1:],
            named,
            n_ctx=ctx,
            n_chunks=chunks,
            caches=types,
            threads=threads,
            budget=budget,
            every_position=every_position,
            progress=progress,
        )

    def figure() -> Figure:
        from pyquant.inspect.figures.kld_by_position import kld_by_position_figure

        return kld_by_position_figure(comparisons)

    def tell(results: list[dict[str, Any]]) -> None:
        with drawing.beside(figure):
            show({**as_json(results), "made_by": made_by(), "made_of": files}, json, _print, keep=True)

    results = [comparison.to_json() for comparison in comparisons]
    if caches.shares:
        from pyquant.inspect.kld_shares import kld_shares

        try:
            with count_bar("splitting") as progress:
                shares = kld_shares(
                    comparisons,
                    opened[0],
                    opened[1:],
                    named,
                    n_ctx=ctx,
                    n_chunks=chunks,
                    threads=threads,
                    every_position=every_position,
                    progress=progress,
                )
        except (PyquantError, KeyboardInterrupt):
            tell(results)
            raise
        results = [
            {**result, "shares": [own.to_json() for own in of_text]}
            for result, of_text in zip(results, shares)
        ]
    tell(results)


def as_json(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one text's result as it is, several as a list under `texts`."""
    return results[0] if len(results) == 1 else {"schema": results[0]["schema"], "texts": results}


def _print(result: dict[str, Any]) -> None:
    print_comparisons(result.get("texts", [result]))
