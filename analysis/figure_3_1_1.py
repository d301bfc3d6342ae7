"""Figure 3.1.1: how often each of the 16 codes of stock Q4_0 occurs."""

from draw import draw

from pyquant.study.metrics.codes import codes
from pyquant.study.results.figures import figure

if __name__ == "__main__":
    draw(__file__, __doc__, lambda model: figure(codes(model.row("q4_0"), by_code=True)))
