"""Draw figures of a study: python analysis/figures.py RESULTS 3.1.1 4.1.3 -o FOLDER

Numbers are those of the thesis (configs/thesis.toml). Each figure is drawn for every model, as SVG and
PNG: the same bytes from the same results.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from matplotlib.figure import Figure

from pyquant.errors import PyquantError
from pyquant.inspect.figures.style import save_figure
from pyquant.study.metrics.codes import codes, runs
from pyquant.study.metrics.quality import klds, perplexities
from pyquant.study.results.figures import figure
from pyquant.study.results.read import ModelResults, read_results
from pyquant.study.results.tradeoff import tradeoff
from pyquant.study.store import Store

FigureOf = Callable[[ModelResults], Figure]
COMPARED = ("q4_0", "q8_0", "q8_table basic", "q8_table balanced")


def stock(model: ModelResults) -> Figure:
    """How often each of the 16 codes of stock Q4_0 occurs."""
    return figure(codes(model.row("q4_0"), by_code=True))


def recentred(model: ModelResults) -> Figure:
    """The codes of Q4_0 recentred, -8 to 7; the most common one is 0."""
    return figure(codes(model.row("q4_0_recentred")))


def recentred_runs(model: ModelResults) -> Figure:
    """Runs of zeros of recentred Q4_0, beside those that chance would make."""
    return figure(runs(model.row("q4_0_recentred")))


def multizero(model: ModelResults) -> Figure:
    """Codes and runs of zeros where codes of magnitude 1 are zeros too."""
    row = model.row("q4_0_multizero 1")
    return figure(codes(row), runs(row))


def multizero_runs(model: ModelResults) -> Figure:
    """Runs of zeros where codes of magnitude up to 1, 2 and 3 are zeros too."""
    return figure(*(runs(model.row(f"q4_0_multizero {radius}")) for radius in (1, 2, 3)))


def basic_table(model: ModelResults) -> Figure:
    """The codes of Q8_0, and those of the basic table, powers of two."""
    return _beside_q8_0(model, "q8_table basic")


def balanced_table(model: ModelResults) -> Figure:
    """The codes of Q8_0, and those of the balanced table."""
    return _beside_q8_0(model, "q8_table balanced")


def _beside_q8_0(model: ModelResults, label: str) -> Figure:
    table = model.row(label)
    return figure(codes(model.row("q8_0"), marks=table), codes(table))


def table_perplexity(model: ModelResults) -> Figure:
    """Perplexity of Q4_0, Q8_0 and both tables, beside the unquantized model's."""
    return figure(perplexities(model, 0, COMPARED), height=2.2)


def table_kld(model: ModelResults) -> Figure:
    """Codes through the balanced table, and what they cost beside Q4_0 and Q8_0."""
    return figure(codes(model.row("q8_table balanced")), klds(model, 0, COMPARED))


def kld_for_size(model: ModelResults) -> Figure:
    """KLD against bits per weight, of every quantizer of any study, on its first text."""
    return figure(tradeoff(model, 0), height=4.5)


FIGURES: dict[str, FigureOf] = {
    "3.1.1": stock,
    "3.2.1": recentred,
    "3.2.2": recentred_runs,
    "3.3.1": multizero,
    "3.3.2": multizero_runs,
    "4.1.1": basic_table,
    "4.1.2": balanced_table,
    "4.1.3": table_perplexity,
    "4.1.4": table_kld,
    "kld_for_size": kld_for_size,
}


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Make a reader of what scripts that draw share: the results, and where figures go."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, help="the folder of results of `pyquant study run`")
    parser.add_argument("-o", "--output", type=Path, default=Path(), help="a folder (default: here)")
    return parser


def draw(figures: Mapping[str, FigureOf], results: Path, folder: Path) -> None:
    """Draw figures, by the names of their files, for each model of a study; ends the process on an error."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for model in read_results(Store(results)).models:
            for name, figure_of in figures.items():
                drawn = figure_of(model)
                for kind in ("svg", "png"):
                    path = folder / f"{name}-{Path(model.name).stem}.{kind}"
                    save_figure(drawn, path)
                    print(path)
    except (PyquantError, OSError) as error:
        sys.exit(f"{sys.argv[0]}: {error}")


def _file_of(name: str) -> str:
    return f"figure_{name.replace('.', '_')}" if name[0].isdigit() else name


def main() -> None:
    """Draw the figures that are asked for."""
    parser = parser_of(__doc__)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help="of those below (default: all)")
    listed = (f"  {name}  {of.__doc__}" for name, of in FIGURES.items())
    parser.epilog = "figures:\n" + "\n".join(listed)
    arguments = parser.parse_intermixed_args()
    if unknown := [name for name in arguments.figures if name not in FIGURES]:
        sys.exit(f"{sys.argv[0]}: there is no figure {unknown[0]!r}; there are {', '.join(FIGURES)}")
    names = arguments.figures or FIGURES
    draw({_file_of(name): FIGURES[name] for name in names}, arguments.results, arguments.output)


if __name__ == "__main__":
    main()
