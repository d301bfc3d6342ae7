"""Options that several commands share, by themselves or as groups that mean something together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Optional

import typer

from pyquant import limits
from pyquant.cli import paths
from pyquant.cli.number import number_option
from pyquant.cli.panels import EXPERT, GENERAL
from pyquant.errors import ConfigError
from pyquant.files.text import Text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pyquant.fit.mixtures import WantedSize as Wanted
    from pyquant.rounding.shards import Split
    from pyquant.schemes import Mode


def output_option(metavar: str, help: str) -> Any:
    """-o, the file that a command writes."""
    return typer.Option("--output", "-o", metavar=metavar, parser=paths.output, help=help)


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
        help="q4_0, q4_0_recentred, q4_0_multizero, q8_0, q8_table, table, ecsq, the name of a mode in "
        "--scheme FILE.py, or ggml:TYPE for any type of GGML (ggml:Q4_K, ggml:IQ4_NL, ...).",
    ),
]
SchemeFile = Annotated[
    Optional[Path],
    typer.Option(
        "--scheme",
        metavar="FILE.py",
        parser=paths.source,
        rich_help_panel=EXPERT,
        help="Load modes from a Python file; without --mode, use the one that it defines.",
    ),
]
Settings = Annotated[
    Optional[list[str]],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        rich_help_panel=EXPERT,
        help="Set any parameter of the mode, such as radius=2; repeatable.",
    ),
]
Radius = Annotated[
    Optional[int],
    number_option(limits.RADIUS, "0..7", "q4_0_multizero: codes of magnitude up to this become 0."),
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
        rich_help_panel=EXPERT,
        help="Take mode and parameters from a TOML file; options beside it override it.",
    ),
]
Pure = Annotated[
    Optional[bool],
    typer.Option("--pure", rich_help_panel=GENERAL, help="Give every tensor the same type, no mixture."),
]
Imatrix = Annotated[
    Optional[Path],
    typer.Option(
        metavar="FILE",
        parser=paths.source,
        rich_help_panel=GENERAL,
        help="Importance matrix from llama-imatrix, for types that take one.",
    ),
]
Hessian = Annotated[
    Optional[Path],
    typer.Option(
        "--hessian",
        metavar="FILE",
        parser=paths.kept,
        rich_help_panel=GENERAL,
        help="Hessian statistics of `pyquant calibrate`, by which GPTQ rounds. Methods gptq and best make "
        "them if they are missing; default: in the cache.",
    ),
]
HessianFile = Annotated[
    Path,
    typer.Option(
        "--hessian", metavar="FILE", parser=paths.source, help="Hessian statistics of `pyquant calibrate`."
    ),
]
Dampening = Annotated[
    Optional[float],
    number_option(
        limits.DAMPENING,
        "X",
        "Added to the diagonal of H, in units of its mean; default: 0.03, with --error-propagation 0.3.",
        panel=EXPERT,
    ),
]
ErrorPropagation = Annotated[
    Optional[int],
    number_option(
        limits.SEQUENCES,
        "CHUNKS",
        "Round in the model's order over so many chunks of the statistics' tokens, each matrix to the target "
        "that corrects the errors before it (Qronos, GPTAQ); 1 to 256.",
        panel=EXPERT,
    ),
]
Equalize = Annotated[
    Optional[bool],
    typer.Option(
        "--equalize",
        help="Cross-layer equalization first, as by `pyquant equalize`.",
    ),
]
Step = Annotated[
    Optional[float],
    number_option(
        limits.STEP,
        "X",
        "ecsq: root of 12 times the squared error of outputs per weight; or let --target-size, "
        "--target-bpw or --like find it.",
        panel=EXPERT,
    ),
]
SensitivityFile = Annotated[
    Optional[Path],
    typer.Option(
        "--sensitivity",
        metavar="FILE.toml",
        parser=paths.source,
        help="ecsq: what `pyquant sensitivity` measured.",
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
Requantize = Annotated[
    Optional[bool],
    typer.Option(
        "--requantize",
        rich_help_panel=GENERAL,
        help="Take a model that is quantized already; its errors stay, and new ones come.",
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
    number_option(limits.CTX, "TOKENS", "Tokens in a chunk; those in its second half are scored.", "--ctx"),
]
Chunks = Annotated[
    Optional[int],
    number_option(limits.CHUNKS, "N", "Use only the first chunks of a text; default: all.", "--chunks"),
]
Threads = Annotated[
    Optional[int], number_option(limits.THREADS, "N", "Threads to compute with; default: all cores.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing output.")]


@dataclass(frozen=True)
class ModeOptions:
    """A mode and its parameters."""

    panel: ClassVar[str] = "Research schemes"

    mode: ModeName = None
    scheme: SchemeFile = None
    set_: Settings = None
    table: TableName = None
    radius: Radius = None
    config: Config = None
    pure: Pure = None
    imatrix: Imatrix = None
    tensors: Tensors = None
    requantize: Requantize = None

    def chosen(self, **more: Any) -> Mode | None:
        """Make the mode that a configuration file and options give together; None if they name none.

        Files that the mode reads are protected, those that only the configuration names too.

        more: parameters that no option of this class gives.
        """
        from pyquant.files.output_file import protect
        from pyquant.schemes.outside import load_modes
        from pyquant.schemes.settings import make_mode, read_config

        settings = read_config(self.config) if self.config else {}
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        given = {key: value for key, value in {**own, **more}.items() if value is not None}
        for key in ("config", "scheme", "set_"):
            given.pop(key, None)
        for key, value in _assignments(self.set_ or []):
            if key in given:
                raise ConfigError(f"--set {key}: is given twice")
            given[key] = value
        settings.update(given)
        if "recipe" in given:
            settings.setdefault("mode", "recipe")
        if self.scheme is not None:
            modes = load_modes(self.scheme)
            if len(modes) == 1:
                settings.setdefault("mode", modes[0].name)
        if not settings and not self.config:
            return None
        mode = make_mode(settings, str(self.config) if self.config else "command line")
        for path in mode.files():
            protect(path)
        return mode


@dataclass(frozen=True)
class WrittenMode(ModeOptions):
    """A mode by which a file is written, and what it knows of the model's inputs."""

    store: Store = None
    recipe: RecipeFile = None
    hessian: Hessian = None
    equalize: Equalize = None
    dampening: Dampening = None
    error_propagation: ErrorPropagation = None
    step: Step = None
    sensitivity: SensitivityFile = None


@dataclass(frozen=True)
class WantedSize:
    """The size that a file is to have at most."""

    panel: ClassVar[str] = "Size instead of a type"

    target_size: Annotated[
        Optional[str],
        typer.Option(
            metavar="SIZE",
            help="The file is at most so large, such as 4.1GB; of `quantize --mode ecsq` the .pqz file.",
        ),
    ] = None
    target_bpw: Annotated[
        Optional[float],
        number_option(
            limits.BITS, "BITS", "The file has at most so many bits per weight, all its bytes counted."
        ),
    ] = None
    like: Annotated[
        Optional[str],
        typer.Option(
            metavar="TYPE",
            help="The file is at most as large as this type's; of `quantize --mode ecsq`: of its KLD on "
            "--text.",
        ),
    ] = None

    @property
    def given(self) -> int:
        """Count the ways in which one is given."""
        return sum(value is not None for value in (self.target_size, self.target_bpw, self.like))

    def read(self) -> Wanted:
        """Read it. Raises ConfigError: none is given, or several are."""
        if self.given != 1:
            raise ConfigError("give one of --target-size, --target-bpw and --like")
        from pyquant.fit.mixtures import WantedSize as Wanted

        n_bytes = None if self.target_size is None else limits.parse_size("--target-size", self.target_size)
        return Wanted(n_bytes, self.target_bpw, self.like)


@dataclass(frozen=True)
class Shards:
    """Whether the output is one file."""

    panel: ClassVar[str] = GENERAL

    split_max_size: Annotated[
        Optional[str],
        typer.Option(
            metavar="SIZE",
            help="Write shards OUT-00001-of-0000N.gguf with tensors of at most so many bytes each, such as "
            "2G, as llama-gguf-split does.",
        ),
    ] = None
    keep_split: Annotated[
        bool,
        typer.Option("--keep-split", help="Write the shards that the model has, as llama-quantize does."),
    ] = False

    def read(self, output: Path) -> Split | None:
        """Read it; None: one file. Raises ConfigError: both are given, or `output` is a pqz file."""
        if self.split_max_size is None and not self.keep_split:
            return None
        if self.split_max_size is not None and self.keep_split:
            raise ConfigError("give one of --split-max-size and --keep-split")
        from pyquant.models.pqz.pqz_file import PQZ_SUFFIX

        if output.suffix == PQZ_SUFFIX:
            raise ConfigError(f"{output}: a {PQZ_SUFFIX} file is whole; shards are GGUFs")
        if self.split_max_size is None:
            return "keep"
        return limits.parse_size("--split-max-size", self.split_max_size)


@dataclass(frozen=True)
class Drawing:
    """A figure of the result."""

    plot: Annotated[
        Optional[Path],
        typer.Option(metavar="FILE", parser=paths.output, help="Draw it: a .png, .svg or .pdf file."),
    ] = None
    force: Force = False

    def check(self) -> None:
        """Refuse a figure that may not be written, before work begins."""
        if self.plot:
            from pyquant.inspect.figures.style import check_figure

            check_figure(self.plot, sources=[], force=self.force)
        elif self.force:
            raise ConfigError("--force: replaces a figure; give --plot FILE")

    @contextmanager
    def beside(self, figure: Callable[[], Figure]) -> Iterator[None]:
        """Write the figure, if one is wanted, after the result is shown within, which no figure must cost."""
        try:
            yield
        finally:
            if self.plot:
                from pyquant.cli.output import remark
                from pyquant.inspect.figures.style import save_figure

                save_figure(figure(), self.plot)
                remark(f"drawn to {self.plot}")


def _assignments(pairs: list[str]) -> list[tuple[str, str]]:
    assignments = [pair.partition("=") for pair in pairs]
    for pair, (key, equals, _) in zip(pairs, assignments):
        if not (key and equals):
            raise ConfigError(f"--set: expected KEY=VALUE, got {pair!r}")
    return [(key.strip(), value) for key, _, value in assignments]
