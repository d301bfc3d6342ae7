"""Types of a cache that `pyquant compare` is given, and what a KLD comes of."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from pyquant.cli.output import print_table
from pyquant.limits import CACHE_TYPES

if TYPE_CHECKING:
    from pyquant.llama.cache_types import CacheTypes


@dataclass(frozen=True)
class ComparedCaches:
    """Types of keys and values, with which all models are run too."""

    cache_type_k: Annotated[
        Optional[list[str]],
        typer.Option(
            "--cache-type-k",
            "-ctk",
            metavar="TYPE",
            help=f"Run all models with a cache of this type of keys too: {', '.join(CACHE_TYPES)}; "
            f"repeatable, the n-th belongs to the n-th -ctv.",
        ),
    ] = None
    cache_type_v: Annotated[
        Optional[list[str]],
        typer.Option(
            "--cache-type-v", "-ctv", metavar="TYPE", help="The same of values; f16 where there is none."
        ),
    ] = None
    shares: Annotated[
        bool,
        typer.Option(
            "--shares",
            help="Say what part of each KLD weights, rounded activations and the cache have; runs each model "
            "once more, dequantized to F16 in the folder for temporary files.",
        ),
    ] = False

    def read(self) -> list[CacheTypes]:
        """Pair types of keys with types of values, in their order. Raises ConfigError."""
        from pyquant.llama.cache_types import CacheTypes

        pairs = zip_longest(self.cache_type_k or [], self.cache_type_v or [], fillvalue="f16")
        return [CacheTypes(*pair) for pair in pairs]


def print_shares(shares: list[dict[str, Any]], names: dict[str, str], width: int) -> None:
    """Print which part of a KLD comes of what, a table for each cache. names: of files."""
    for cache, group in groupby(sorted(shares, key=_cache), _cache):
        rows = []
        for own in group:
            parts, total = (own["weights"], own["activations"], own["cache"]), own["total"]["kld"]
            rows.append([names[own["file"]], *(_part(part, total) for part in parts), f"{total:.5f}"])
        columns = [f"KLD, KV {'/'.join(cache)}", "weights", "8-bit activations", "cache", "all"]
        print_table(columns, rows, width=width)


def _cache(own: dict[str, Any]) -> tuple[str, str]:
    return own["cache_type_k"], own["cache_type_v"]


def _part(part: dict[str, float] | None, total: float) -> str:
    if part is None:
        return "-"
    share = f" {100 * part['kld'] / total:.0f} %" if total else ""
    return f"{part['kld']:.5f} ± {part['error']:.5f}{share}"
