"""Count what a study of drafts came to: its gains by the clock, and how far replays were from it.

    python analysis/draft_study.py RESULTS

RESULTS is the folder of `pyquant study run configs/drafting.toml`. Prints tables of Markdown:

- For each draft, the seconds of one of its tokens over those of a token of the first target. Then, for each
  target and sort of prompts, how many times as fast `expected_value` was by the clock, and in brackets the
  gain that no policy could exceed, by replays. The last column counts where `expected_value` was fastest.
- For each kind of policy, how many runs were at .98 or above of the target alone, and how far replays were
  from the clock.
- For each target, the least and the most that passes over several tokens took.

Below them it names the runs with `expected_value` that were slower, and says how far runs without a drafted
token were from the target alone, which is chance.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyquant.generation.speculative.measure.measure_pair import STRATEGIES
from pyquant.generation.speculative.replay.simulate import ORACLE
from pyquant.generation.study.report.drafting import (
    EXPECTED,
    HEURISTIC,
    costs_of,
    gain,
    parts_of,
    runs_in,
    sorts_of,
    targets,
)
from pyquant.study.results.read import ModelResults, read_results
from pyquant.study.store import Store

NEVER_BELOW = 0.98  # times as fast as the target alone
PASSES = (2, 3, 4, 8)
KINDS = {EXPECTED: "expected value", **dict.fromkeys(STRATEGIES, "strategy"), HEURISTIC: "heuristic"}


@dataclass(frozen=True)
class Ran:
    """Texts of a sort that were written with a policy, beside those without a draft.

    Attributes
    ----------
    draft, target, sort : str
    kind : str
        One of KINDS: the thesis's three strategies are one kind, as the best of them was run.
    ratio, low, high : float
        Times as fast as the target alone, and its interval.
    drafted : int
        Tokens.
    replay : float or None
        Milliseconds per token of the replay over those by the clock, less 1.
    most : float
        The gain that no policy could exceed, by replays.
    """

    draft: str
    target: str
    sort: str
    kind: str
    ratio: float
    low: float
    high: float
    drafted: int
    replay: float | None
    most: float


def runs_of(model: ModelResults) -> Iterator[Ran]:
    """Yield what was written in earnest, of all drafts, for all targets."""
    for target in targets(model):
        for row, part in parts_of(model, target):
            for sort, ran, its in runs_in(part):
                replay = its["replayed"] / its["measured"] - 1 if its.get("replayed") else None
                yield Ran(
                    row.label, target, sort, KINDS[ran["policy"].partition(":")[0]],
                    ran["ratio"], ran["ratio_low"], ran["ratio_high"], ran["drafted"], replay,
                    gain(part, ORACLE, sort) or 1.0,
                )  # fmt: skip


def gains_table(model: ModelResults, runs: list[Ran]) -> list[str]:
    """Return lines of the first table."""
    places = [(target, sort) for target in targets(model) for sort in sorts_of(model, target)]
    lines = _heads("draft", "a token", *(f"{target}: {sort}" for target, sort in places), "fastest")
    for row, part in parts_of(model, targets(model)[0]):
        its = {(ran.target, ran.sort, ran.kind): ran for ran in runs if ran.draft == row.label}
        cells, n_fastest = [], 0
        for place in places:
            expected = its.get((*place, KINDS[EXPECTED]))
            if expected is None:
                cells.append("-")
                continue
            cells.append(f"{expected.ratio:.2f} ({expected.most:.2f})")
            n_fastest += all(ran.ratio <= expected.ratio for at, ran in its.items() if at[:2] == place)
        costs = costs_of(part)
        share = f"{costs.draft_next / costs.alone:.2f}"
        lines.append(_row(row.label, share, *cells, f"{n_fastest} of {len(cells) - cells.count('-')}"))
    return lines


def policies_table(runs: list[Ran]) -> list[str]:
    """Return lines of the second table."""
    lines = _heads("policy", "runs", f"at {NEVER_BELOW} or above", "replays off by: median", "three quarters")
    for kind in dict.fromkeys(KINDS.values()):
        its = [ran for ran in runs if ran.kind == kind]
        off = [abs(ran.replay) for ran in its if ran.replay is not None]
        within = [f"{100 * share:.1f} %" for share in np.quantile(off, [0.5, 0.75])] if off else ["-", "-"]
        lines.append(_row(kind, len(its), sum(ran.ratio >= NEVER_BELOW for ran in its), *within))
    return lines


def passes_table(model: ModelResults) -> list[str]:
    """Return lines of the third table."""
    lines = _heads("target", *(f"T({n}) / T(1)" for n in PASSES))
    for target in targets(model):
        costs = [costs_of(part) for _, part in parts_of(model, target)]
        took = [[its.of_pass(n) / its.of_pass(1) for its in costs] for n in PASSES]
        lines.append(_row(target, *(f"{min(each):.2f} to {max(each):.2f}" for each in took)))
    return lines


def below(runs: list[Ran]) -> list[str]:
    """Say which runs with `expected_value` were slower than they may be, and what chance does to one."""
    expected = [ran for ran in runs if ran.kind == KINDS[EXPECTED]]
    said = [
        f"Below {NEVER_BELOW}: {ran.draft}, {ran.target}, {ran.sort}: {ran.ratio:.3f} "
        f"({ran.low:.2f}..{ran.high:.2f}), {ran.drafted} tokens drafted"
        for ran in sorted(expected, key=lambda ran: ran.ratio)
        if ran.ratio < NEVER_BELOW
    ]
    nothing = [ran.ratio for ran in expected if not ran.drafted]
    if len(nothing) > 1:
        said.append(
            f"Nothing drafted in {len(nothing)} runs: mean {np.mean(nothing):.3f}, standard deviation "
            f"{np.std(nothing, ddof=1):.3f}"
        )
    return said


def _heads(*names: str) -> list[str]:
    return [_row(*names), "|" + "---|" * len(names)]


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Read and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("results", type=Path, metavar="RESULTS")
    for model in read_results(Store(parser.parse_args().results)).models:
        runs = list(runs_of(model))
        parts = [gains_table(model, runs), policies_table(runs), passes_table(model), below(runs)]
        print("\n\n".join("\n".join(part) for part in parts if part))


if __name__ == "__main__":
    main()
