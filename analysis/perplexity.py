"""Perplexity and KLD of every quantizer of a study, on its first text."""

from figures import draw, parser_of
from matplotlib.figure import Figure

from pyquant.study.metrics.quality import klds, perplexities
from pyquant.study.results.figures import figure
from pyquant.study.results.read import ModelResults


def figure_of(model: ModelResults) -> Figure:
    return figure(perplexities(model, 0), klds(model, 0), height=1 + 0.24 * len(model.rows))


if __name__ == "__main__":
    arguments = parser_of(__doc__).parse_args()
    draw({"perplexity": figure_of}, arguments.results, arguments.output)
