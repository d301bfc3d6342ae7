"""Figure 3.2.2: runs of zeros of recentred Q4_0, beside those that chance would make."""

from draw import draw

from pyquant.study.metrics.codes import runs
from pyquant.study.results.figures import figure

if __name__ == "__main__":
    draw(__file__, __doc__, lambda model: figure(runs(model.row("q4_0_recentred"))))
