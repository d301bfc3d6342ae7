"""Options that several commands share, and the mode that they describe together."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from pyquant import limits
from pyquant.cli import paths
from pyquant.cli.number import Number
from pyquant.errors import ConfigError
from pyquant.files.text import Text

if TYPE_CHECKING:
    from pyquant.schemes import Mode

FloatModel = Annotated[
    Path, typer.Argument(metavar="MODEL.gguf", parser=paths.source, help="Model in F32, F16 or BF16.")
]
AnyModel = Annotated[
    Path, typer.Argument(metavar="MODEL.gguf", parser=paths.source, help="GGUF of any types, or pqz file.")
]
AnyModels = Annotated[
    list[Path],
    typer.Argument(metavar="MODEL.gguf", parser=paths.source, help="GGUFs of any types, or pqz files."),
]
Output = Annotated[Path, typer.Argument(metavar="OUT.gguf", parser=paths.output, help="GGUF file to write.")]
ModeName = Annotated[
    Optional[str],
    typer.Option(
        "--mode",
        metavar="MODE",
        help="q4_0, q4_0_recentred, q4_0_multizero, q8_0, q8_table, table, uniform, the name of a mode in "
        "--scheme FILE.py, or ggml:TYPE for any type of GGML (ggml:Q4_K, ggml:IQ4_NL, ...).",
    ),
]
SchemeFile = Annotated[
    Optional[Path],
    typer.Option(
        "--scheme",
        metavar="FILE.py",
        parser=paths.source,
        help="Load modes from a Python file; without --mode, use the one that it defines.",
    ),
]
Settings = Annotated[
    Optional[list[str]],
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Set any parameter of the mode, such as radius=2; repeatable."
    ),
]
Radius = Annotated[
    Optional[int],
    typer.Option(
        metavar="0..7",
        parser=Number(limits.RADIUS),
        help="q4_0_multizero: codes of magnitude up to this become 0.",
    ),
]
TableName = Annotated[
    Optional[str],
    typer.Option(
        "--table",
        metavar="TABLE",
        parser=paths.source_or_word,
        help="q8_table: basic, balanced, or a TOML file; table: a TOML file.",
    ),
]
Store = Annotated[
    Optional[str],
    typer.Option(
        metavar="stock|q4_t",
        help="q4_t: store 4-bit codes with their table, a type that only pyquant's llama.cpp knows; "
        "default: stock, a type that any llama.cpp runs.",
    ),
]
Config = Annotated[
    Optional[Path],
    typer.Option(
        metavar="FILE.toml",
        parser=paths.source,
        help="Take mode and parameters from a TOML file; options beside it override it.",
    ),
]
Pure = Annotated[Optional[bool], typer.Option("--pure", help="Give every tensor the same type, no mixture.")]
Imatrix = Annotated[
    Optional[Path],
    typer.Option(
        metavar="FILE",
        parser=paths.source,
        help="Importance matrix from llama-imatrix, for types that take one.",
    ),
]
Calibration = Annotated[
    Optional[Path],
    typer.Option(
        metavar="STATS",
        parser=paths.source,
        help="What `pyquant calibrate` wrote: errors are compensated by it.",
    ),
]
CalibrationFile = Annotated[
    Path,
    typer.Option(
        "--calibration", metavar="STATS", parser=paths.source, help="What `pyquant calibrate` wrote."
    ),
]
Damping = Annotated[
    Optional[float],
    typer.Option(
        metavar="X",
        parser=Number(limits.DAMPING),
        help="With --calibration: added to second moments, in units of their mean diagonal; default: 0.03, "
        "with --sequential 0.3.",
    ),
]
Sequential = Annotated[
    Optional[int],
    typer.Option(
        metavar="CHUNKS",
        parser=Number(limits.SEQUENCES),
        help="With --calibration: run so many chunks of its tokens, and let each matrix make up for what "
        "rounding the ones before it did; 1 to 256.",
    ),
]
Equalize = Annotated[
    Optional[bool],
    typer.Option(
        "--equalize",
        help="With --calibration: scale channels first, as `pyquant equalize` does, so that less is lost.",
    ),
]
Step = Annotated[
    Optional[float],
    typer.Option(
        metavar="X",
        parser=Number(limits.STEP),
        help="uniform: root of 12 times the squared error of outputs per weight; or let --bits, --size or "
        "--like find it.",
    ),
]
SensitivityFile = Annotated[
    Optional[Path],
    typer.Option(
        "--sensitivity",
        metavar="FILE.toml",
        parser=paths.source,
        help="uniform: what `pyquant sensitivity` measured.",
    ),
]
RecipeFile = Annotated[
    Optional[Path],
    typer.Option(
        "--recipe",
        metavar="RECIPE.toml",
        parser=paths.source,
        help="Give each tensor the type that a recipe says, as `pyquant mix` writes it; instead of --mode.",
    ),
]
Tensors = Annotated[
    Optional[str],
    typer.Option(
        metavar="REGEX", help="Quantize only tensors whose name this expression finds; default: all."
    ),
]
TextFile = Annotated[
    Text,
    typer.Option(
        "--text",
        metavar="FILE",
        parser=paths.text,
        help="UTF-8 text to evaluate on; - is standard input.",
    ),
]
TextFiles = Annotated[
    list[Text],
    typer.Option(
        "--text",
        metavar="FILE",
        parser=paths.text,
        help="UTF-8 text to evaluate on; - is standard input; repeatable: texts count alike.",
    ),
]
Ctx = Annotated[
    int,
    typer.Option(
        "--ctx",
        metavar="TOKENS",
        parser=Number(limits.CTX),
        help="Tokens in a chunk; those in its second half are scored.",
    ),
]
Chunks = Annotated[
    Optional[int],
    typer.Option(
        "--chunks",
        metavar="N",
        parser=Number(limits.CHUNKS),
        help="Use only the first chunks of a text; default: all.",
    ),
]
Threads = Annotated[
    Optional[int],
    typer.Option(
        metavar="N", parser=Number(limits.THREADS), help="Threads to compute with; default: all processors."
    ),
]
Seed = Annotated[
    int,
    typer.Option(metavar="N", parser=Number(limits.SEED), help="The same seed writes the same texts."),
]
Engine = Annotated[
    str,
    typer.Option(metavar="ENGINE", help="What follows the grammar: llguidance, lr, or llama.cpp's gbnf."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing output.")]


def mode_from_options(
    config: Path | None,
    *,
    scheme: Path | None = None,
    set_: list[str] | None = None,
    **options: Any,
) -> Mode | None:
    """Makes the mode that a configuration file and options give together; None if they name none.

    Files that the mode reads are protected, those that only the configuration names too.
    """
    from pyquant.files.output_file import protect
    from pyquant.schemes.outside import load_modes
    from pyquant.schemes.settings import make_mode, read_config

    settings = read_config(config) if config else {}
    settings.pop("threads", None)  # see threads_from
    given = {key: value for key, value in options.items() if value is not None}
    for key, value in _assignments(set_ or []):
        if key in given:
            raise ConfigError(f"--set {key}: is given twice")
        given[key] = value
    settings.update(given)
    if "recipe" in given:
        settings.setdefault("mode", "recipe")
    if scheme is not None:
        modes = load_modes(scheme)
        if len(modes) == 1:
            settings.setdefault("mode", modes[0].name)
    if not settings and not config:
        return None
    mode = make_mode(settings, str(config) if config else "command line")
    for path in mode.files():
        protect(path)
    return mode


def threads_from(config: Path | None, threads: int | None) -> int | None:
    """The number of threads: the option, or the key that configurations had until version 0.1."""
    from pyquant.schemes.settings import read_config

    if config is None or "threads" not in (settings := read_config(config)):
        return threads
    warnings.warn(f"{config}: threads: is no part of a mode now; give --threads", FutureWarning, stacklevel=2)
    limits.THREADS.check(f"{config}: threads", settings["threads"])
    return threads if threads is not None else settings["threads"]


def _assignments(pairs: list[str]) -> list[tuple[str, str]]:
    assignments = [pair.partition("=") for pair in pairs]
    for pair, (key, equals, _) in zip(pairs, assignments):
        if not (key and equals):
            raise ConfigError(f"--set: expected KEY=VALUE, got {pair!r}")
    return [(key.strip(), value) for key, _, value in assignments]
