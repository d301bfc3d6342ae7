"""Figure 3.3.2: runs of zeros where codes of magnitude up to 1, 2 and 3 are zeros too."""

from draw import draw
from matplotlib.figure import Figure

from pyquant.study.metrics.codes import runs
from pyquant.study.results.figures import figure
from pyquant.study.results.read import ModelResults


def figure_of(model: ModelResults) -> Figure:
    return figure(*(runs(model.row(f"q4_0_multizero {radius}")) for radius in (1, 2, 3)))


if __name__ == "__main__":
    draw(__file__, __doc__, figure_of)
