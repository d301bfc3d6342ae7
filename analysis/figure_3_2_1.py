"""Figure 3.2.1: the codes of Q4_0 recentred, -8 to 7; the most common one is 0."""

from draw import draw

from pyquant.study.metrics.codes import codes
from pyquant.study.results.figures import figure

if __name__ == "__main__":
    draw(__file__, __doc__, lambda model: figure(codes(model.row("q4_0_recentred"))))
