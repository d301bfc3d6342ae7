"""Figure 4.1.2: the codes of Q8_0, and those of the balanced table."""

from draw import draw
from matplotlib.figure import Figure

from pyquant.study.metrics.codes import codes
from pyquant.study.results.figures import figure
from pyquant.study.results.read import ModelResults


def figure_of(model: ModelResults) -> Figure:
    table = model.row("q8_table balanced")
    return figure(codes(model.row("q8_0"), marks=table), codes(table))


if __name__ == "__main__":
    draw(__file__, __doc__, figure_of)
