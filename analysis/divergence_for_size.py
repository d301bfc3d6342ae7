"""Divergence against bits per weight, of every quantizer of a study, on its first text."""

from draw import draw

from pyquant.study.results.figures import figure
from pyquant.study.results.tradeoff import tradeoff

if __name__ == "__main__":
    draw(__file__, __doc__, lambda model: figure(tradeoff(model, 0), height=4.5))
