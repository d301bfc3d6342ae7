"""Figure 4.1.4: codes through the balanced table, and what they cost beside Q4_0 and Q8_0."""

from draw import draw
from matplotlib.figure import Figure

from pyquant.study.metrics.codes import codes
from pyquant.study.metrics.quality import divergences
from pyquant.study.results.figures import figure
from pyquant.study.results.read import ModelResults

ROWS = ("q4_0", "q8_0", "q8_table basic", "q8_table balanced")


def figure_of(model: ModelResults) -> Figure:
    return figure(codes(model.row("q8_table balanced")), divergences(model, 0, ROWS))


if __name__ == "__main__":
    draw(__file__, __doc__, figure_of)
