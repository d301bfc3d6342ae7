"""Figure 3.3.1: codes and runs of zeros where codes of magnitude 1 are zeros too."""

from draw import draw
from matplotlib.figure import Figure

from pyquant.study.metrics.codes import codes, runs
from pyquant.study.results.figures import figure
from pyquant.study.results.read import ModelResults


def figure_of(model: ModelResults) -> Figure:
    row = model.row("q4_0_multizero 1")
    return figure(codes(row), runs(row))


if __name__ == "__main__":
    draw(__file__, __doc__, figure_of)
