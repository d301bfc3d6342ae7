"""Options that several commands share, and the mode that they describe together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

if TYPE_CHECKING:
    from pyquant.schemes import Mode

ModeName = Annotated[
    Optional[str],
    typer.Option(
        "--mode",
        help="q4_0, q4_0_recentred, q4_0_multizero, q8_0, q8_table, table, uniform, or ggml:TYPE for any "
        "type of GGML (ggml:Q4_K, ggml:IQ4_NL, ...).",
    ),
]
Radius = Annotated[
    Optional[int],
    typer.Option(help="q4_0_multizero: codes of magnitude up to this become 0; 0..7."),
]
TableName = Annotated[
    Optional[str],
    typer.Option("--table", help="q8_table: basic, balanced, or a TOML file; table: a TOML file."),
]
Store = Annotated[
    Optional[str],
    typer.Option(
        metavar="packed|stock",
        help="packed: 4-bit codes with a table, a type that only pyquant's llama.cpp knows; the default "
        "is a type that any llama.cpp runs.",
    ),
]
Config = Annotated[
    Optional[Path],
    typer.Option(help="Mode and parameters from a TOML file; options given beside it override it."),
]
Pure = Annotated[Optional[bool], typer.Option("--pure", help="Every tensor in the same type, no mixture.")]
Imatrix = Annotated[
    Optional[Path], typer.Option(help="Importance matrix from llama-imatrix, for types that take one.")
]
Calibration = Annotated[
    Optional[Path],
    typer.Option(metavar="STATS", help="What `pyquant calibrate` wrote: errors are compensated by it."),
]
Damping = Annotated[
    Optional[float],
    typer.Option(
        help="With --calibration: added to second moments, in units of their mean diagonal; default: 0.03, "
        "with --sequential 0.3."
    ),
]
Sequential = Annotated[
    Optional[int],
    typer.Option(
        metavar="CHUNKS",
        help="With --calibration: run so many chunks of its tokens, and let each matrix make up for what "
        "rounding the ones before it did.",
    ),
]
Step = Annotated[
    Optional[float],
    typer.Option(
        help="uniform: root of 12 times the squared error of outputs per weight; or let --bpw, --size or "
        "--like find it."
    ),
]
SensitivityFile = Annotated[
    Optional[Path],
    typer.Option("--sensitivity", metavar="FILE.toml", help="uniform: what `pyquant sensitivity` measured."),
]
Tensors = Annotated[
    Optional[str],
    typer.Option(metavar="REGEX", help="Quantize only tensors whose name this expression finds."),
]
TextFile = Annotated[Path, typer.Option("--text", metavar="FILE", help="UTF-8 text to evaluate on.")]
Ctx = Annotated[int, typer.Option("--ctx", help="Tokens in a chunk; those in its second half are scored.")]
Chunks = Annotated[Optional[int], typer.Option("--chunks", help="Only the first chunks of the text.")]
Threads = Annotated[Optional[int], typer.Option(help="Default: all processors.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing output.")]


def mode_from_options(config: Path | None, **options: object) -> Mode | None:
    """The mode that a configuration file and options give together; None if they name none."""
    from pyquant.schemes.settings import make_mode, read_config

    settings = read_config(config) if config else {}
    settings.update({key: value for key, value in options.items() if value is not None})
    if "mode" not in settings and not config and not settings:
        return None
    return make_mode(settings, str(config) if config else "command line")
