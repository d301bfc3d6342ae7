"""Figure 4.1.3: perplexity of Q4_0, Q8_0 and both tables, beside the unquantized model's."""

from draw import draw

from pyquant.study.metrics.quality import perplexities
from pyquant.study.results.figures import figure

ROWS = ("q4_0", "q8_0", "q8_table basic", "q8_table balanced")

if __name__ == "__main__":
    draw(__file__, __doc__, lambda model: figure(perplexities(model, 0, ROWS), height=2.2))
