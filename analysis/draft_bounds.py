"""Say what rules that end a draft could gain on a record, by how much they know.

    python analysis/draft_bounds.py --costs COSTS RECORD [RECORD ...]

COSTS and RECORD are what `pyquant draft costs` and `pyquant draft record` wrote of one pair of models. Texts
count up to where they begin to repeat themselves. Prints a table of Markdown: the share of tokens that is
accepted, the correlation of an accepted token's chance with whether the next one is accepted, and gains over
the target alone of

- `expected_value`, fitted to the record, as it is replayed;
- the best stopping. It knows the chance of each drafted token; of the next one it knows how often which
  chances come, as every rule does that is asked before a token is drafted, where one chance says nothing
  about the next. This gain is expected, not replayed;
- foresight: a rule that knows the chances of all tokens beforehand, but not which are accepted;
- the oracle, which knows that too.

What a draft reads behind a round in which all was accepted is left out of all but the first.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant.generation.speculative.policies import read_policy
from pyquant.generation.speculative.policies.costs import Costs, read_costs
from pyquant.generation.speculative.policies.expected_value import NEARLY
from pyquant.generation.speculative.policies.policy import LONGEST
from pyquant.generation.speculative.record.record import Along, read_record
from pyquant.generation.speculative.replay.search import search
from pyquant.generation.speculative.replay.simulate import ORACLE, Simulation

Floats = NDArray[np.float64]

LEVELS = 20  # of a token's chance, each as frequent as the others
GRID = 1000  # chances that all drafted tokens are accepted, for which the best stopping is found
HALVINGS = 40


def chances_along(text: Along, fitted: dict[str, float]) -> Floats:
    """Return the chance of each token to be accepted, by its probability and entropy: (n,)."""
    p = np.clip(text.top_p, NEARLY, 1 - NEARLY)
    logit = fitted["bias"] + fitted["slope"] * np.log(p / (1 - p)) + fitted["entropy"] * np.sqrt(text.entropy)
    return 1 / (1 + np.exp(-logit))


def correlation_with_next(accepted: list[NDArray[np.bool_]], chances: list[Floats]) -> float:
    """Return the correlation of accepted tokens' chances with whether the token behind each is accepted.

    Behind a refused token no further one is asked for. Not a number where all are alike.
    """
    known = [its[1:-1][facts[1:-1]] for facts, its in zip(accepted, chances)]
    behind = [facts[2:][facts[1:-1]] for facts in accepted]
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.corrcoef(np.concatenate(known), np.concatenate(behind))[0, 1])


def gain_of_best_stopping(costs: Costs, chances: Floats) -> float:
    """Return the largest gain that stopping can be expected to have.

    Each chance is drawn from `chances`, whatever those before it were. At a rate, in tokens a second,
    a round is worth its tokens less what its seconds are worth. The highest rate that a rule can reach is the
    one at which the best round is worth nothing (renewal reward theorem).
    """
    levels = np.quantile(chances, (np.arange(LEVELS) + 0.5) / LEVELS)
    low, high = 1 / costs.alone, (LONGEST + 1) / costs.alone
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _worth_of_round(costs, levels, middle) > 0 else (low, middle)
    return low * costs.alone


def _worth_of_round(costs: Costs, levels: Floats, rate: float) -> float:
    """Find the worth of the best round, from the longest draft back to none.

    `worth` is that of what is still to come, by the chance that all drafted tokens are accepted. A token may
    be dropped as soon as its chance is known.
    """
    all_accepted = np.concatenate([[0.0], np.geomspace(1e-4, 1, GRID)])
    then = all_accepted[:, None] * levels
    worth = np.full(len(all_accepted), -rate * costs.of_pass(LONGEST + 1))
    for n_drafted in reversed(range(LONGEST)):
        stop = -rate * (costs.of_pass(n_drafted + 1) if n_drafted else costs.alone)
        kept = then + np.interp(then, all_accepted, worth)
        dropped = -rate * costs.of_pass(n_drafted + 1)
        draft = -rate * (costs.draft_next if n_drafted else costs.draft)
        worth = np.maximum(stop, draft + np.maximum(kept, dropped).mean(axis=1))
    return 1 + float(worth[-1])


def seconds_with_foresight(text: Along, accepted: NDArray[np.bool_], chances: Floats, costs: Costs) -> float:
    """Return the seconds of a text whose drafts have the lengths that are expected to take least in all.

    Parameters
    ----------
    text
    accepted : (n,) bool
    chances : (n,) float64
        What is known of it beforehand.
    costs
    """
    n = len(text)
    of_round = np.array([costs.of_round(k) for k in range(LONGEST + 1)])
    least, choice = np.zeros(n + 2), [0] * n
    for at in reversed(range(1, n)):
        room = min(LONGEST, n - at - (not text.ended))
        all_accepted = np.cumprod(np.concatenate([[1.0], chances[at : at + room]]))
        behind = least[at + 1 : at + room + 2]
        first_refused = all_accepted[:-1] * (1 - chances[at : at + room]) * behind[:-1]
        expected = of_round[: room + 1] + all_accepted * behind
        expected[1:] += np.cumsum(first_refused)
        choice[at] = int(expected.argmin())
        least[at] = expected[choice[at]]
    at, seconds = 1, 0.0
    while at < n:
        drafted = accepted[at : at + choice[at]]
        seconds += of_round[choice[at]]
        at += 1 + (len(drafted) if drafted.all() else int(drafted.argmin()))
    return seconds


def main() -> None:
    """Replay and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("records", type=Path, nargs="+", metavar="RECORD")
    parser.add_argument("--costs", type=Path, required=True)
    given = parser.parse_args()
    costs = read_costs(given.costs)
    print("| record | accepted | correlation | expected value | best stopping | foresight | oracle |")
    print("|---|---|---|---|---|---|---|")
    for path in given.records:
        record = read_record(path).before_repetitions()
        simulation = Simulation(record, costs)
        fitted = read_policy(simulation.calibrated())[1]
        chances = [chances_along(text, fitted) for text in record.texts]
        seconds = sum(
            seconds_with_foresight(text, accepted, its, costs)
            for text, accepted, its in zip(record.texts, simulation.accepted, chances)
        )
        n_tokens = sum(max(len(text) - 1, 0) for text in record.texts)
        gains = [
            search(simulation, "expected_value").best.gain,
            gain_of_best_stopping(costs, np.concatenate([its[1:] for its in chances])),
            costs.alone * n_tokens / seconds,
            simulation.run(ORACLE).gain,
        ]
        shown = [record.acceptance, correlation_with_next(simulation.accepted, chances), *gains]
        print(f"| {path.name} | {' | '.join(f'{value:.2f}' for value in shown)} |")


if __name__ == "__main__":
    main()
