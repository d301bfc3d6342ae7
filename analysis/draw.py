"""Arguments that the scripts beside this one share: the study to draw from, and the place of the figure."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from pyquant.errors import PyquantError
from pyquant.inspect.figures.style import save_figure
from pyquant.study.results.read import ModelResults, read_results
from pyquant.study.store import Store


def draw(script: str, description: str, figure_of: Callable[[ModelResults], Figure]) -> None:
    """A figure of each model of a study, as SVG and PNG; the same bytes from the same results."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("results", type=Path, help="the folder of `pyquant study run configs/thesis.toml`")
    parser.add_argument("--output", type=Path, default=Path(), help="the folder to draw into (default: here)")
    arguments = parser.parse_args()
    try:
        arguments.output.mkdir(parents=True, exist_ok=True)
        for model in read_results(Store(arguments.results)).models:
            figure = figure_of(model)
            for kind in ("svg", "png"):
                path = arguments.output / f"{Path(script).stem}-{Path(model.name).stem}.{kind}"
                save_figure(figure, path)
                print(path)
    except (PyquantError, OSError) as error:
        sys.exit(f"{script}: {error}")
