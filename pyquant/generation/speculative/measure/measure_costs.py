"""Measure what drafting and verifying take, in turns, so that drift of the machine meets all alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyquant import limits
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import Session
from pyquant.generation.speculative.measure.cost_meter import LARGEST, CostMeter
from pyquant.generation.speculative.measure.cost_report import CostReport
from pyquant.generation.speculative.write.pair import check_both, open_draft
from pyquant.llama.model import Model
from pyquant.machine.processor import n_threads

# (measurements done, all of them)
Progress = Callable[[int, int], None]


def measure_costs(
    target: Path,
    draft: Path | str,
    *,
    depth: int = limits.MEASURED_BEHIND,
    rounds: int = 5,
    threads: int | None = None,
    progress: Progress | None = None,
) -> CostReport:
    """Measure a pair: a draft token, and passes of the target over 1 to 32 tokens.

    Every round measures each pass once, and before each a draft token, for which the draft has one and two
    tokens to read in turns; their medians are the round's. A first round is not counted.

    Parameters
    ----------
    target
    draft
        A model with the target's vocabulary, or "ngram".
    depth
        Tokens that both models have read before: the more there are, the longer attention takes.
    rounds
        Measurements of each.
    threads
        None: all processors.
    progress
        Called with measurements done and all of them.

    Raises
    ------
    ConfigError, ModelFileError, NotEnoughMemory
    """
    limits.ROUNDS.check("rounds", rounds)
    limits.DRAFT_DEPTH.check("depth", depth)
    n_ctx = depth + LARGEST
    check_both(target, draft, n_ctx)
    sampling = Sampling(temperature=0)

    def tell(turn: int) -> Callable[[int, int], None]:
        return lambda n, of: progress(turn * of + n, (rounds + 1) * of) if progress else None

    with (
        Model(target) as model,
        Session(model, 1, n_ctx, n_views=1, threads=threads) as session,
        open_draft(draft, session, sampling, threads=threads) as its_draft,
    ):
        meter = CostMeter(model, session, its_draft, sampling, depth=depth)
        meter.begin()
        meter.turn(tell(0))
        meter.forget()
        for turn in range(1, rounds + 1):
            meter.turn(tell(turn))
        return CostReport(target, draft, meter.timed(), depth, n_threads(threads), its_draft.takes)
