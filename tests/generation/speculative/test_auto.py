"""Policy `auto` by a clock that tests set: what it learns, and what it decides by that."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pyquant.generation.speculative.policies import DEFAULT, make_policy
from pyquant.generation.speculative.policies.acceptance_rates import EXPECTED, WEIGHT, AcceptanceRates
from pyquant.generation.speculative.policies.certainty import Certainty
from pyquant.generation.speculative.policies.learned import Learned
from pyquant.generation.speculative.policies.online_costs import MOST, OnlineCosts, Spent
from pyquant.generation.speculative.rounds import Played, play

ALONE = 0.01  # seconds of a token without a draft
SLOPE = 0.001  # seconds of each further token of a pass

# Whether a token is accepted, and how sure the draft is of it; None: it proposes nothing
Proposes = Callable[[int], "tuple[Certainty, bool] | None"]


class Scripted:
    """A completion whose tokens take as long and are accepted as it is told; more than a million may come."""

    reads, unread = False, 1
    drops = True
    goes_on = True
    room = 10**6

    def __init__(self, n_tokens: int, draft: Callable[[int], float], proposes: Proposes) -> None:
        self._n_tokens, self._draft, self._proposes = n_tokens, draft, proposes
        self.at, self._accepted = 0, list[bool]()
        self._n_calls = 0

    @property
    def done(self) -> bool:
        return self.at >= self._n_tokens

    def propose(self) -> Certainty | None:
        proposed = self._proposes(self.at + len(self._accepted))
        if proposed is None:
            return None
        self._n_calls += 1
        self._accepted.append(proposed[1])
        return proposed[0]

    def drop(self) -> None:
        self._accepted.pop()

    def verify(self) -> tuple[int, Spent]:
        n_accepted = (self._accepted + [False]).index(False)
        each = self._draft(self.at)
        first, further = each * min(self._n_calls, 1), each * max(self._n_calls - 1, 0)
        spent = Spent(first, further, ALONE + SLOPE * len(self._accepted))
        self.at += n_accepted + 1
        self._accepted, self._n_calls = [], 0
        return n_accepted, spent


def speed_up(n_tokens: int, draft: Callable[[int], float], proposes: Proposes) -> tuple[float, list[Played]]:
    """Return how many times as fast as alone it was, and the rounds."""
    completion = Scripted(n_tokens, draft, proposes)
    rounds = list(play(completion, make_policy(DEFAULT), Learned()))
    return completion.at * ALONE / sum(played.seconds for played in rounds), rounds


def model(rate: float, seed: int = 0) -> Proposes:
    """A draft model that is accepted so often, whatever it says."""
    drawn = random.Random(seed)
    return lambda at: (Certainty(1.0, rate, rate), drawn.random() < rate)


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("draft", [0.3, 0.6, 1.0, 2.0])
def test_what_it_loses_is_bounded(draft: float, rate: float) -> None:
    gains = [speed_up(400, lambda at: draft * ALONE, model(rate, seed))[0] for seed in range(8)]
    assert sum(gains) / len(gains) > 0.975


def test_what_pays_is_drafted_from_the_beginning() -> None:
    # At a rate of .9 drafts of 4 bring 4.1 tokens in 4 * .3 + 1.4 passes: 1.58 times as many.
    gains = [speed_up(256, lambda at: 0.3 * ALONE, model(0.9, seed))[0] for seed in range(20)]
    assert sum(gains) / len(gains) > 0.9 * 1.58


def test_a_draft_that_becomes_slow_is_left_and_tried_again() -> None:
    def draft(at: int) -> float:
        return ALONE * (2.0 if 300 <= at < 900 else 0.2)

    _, rounds = speed_up(2000, draft, model(0.9))
    tokens, drafted = 0, {"before": 0, "slow": 0, "after": 0}
    for played in rounds:
        part = (
            "before" if tokens < 300 else "slow" if 400 <= tokens < 900 else "after" if tokens > 1100 else ""
        )
        if part:
            drafted[part] += played.calls
        tokens += played.accepted + 1
    assert drafted["before"] > 150
    assert 1 <= drafted["slow"] < 40
    assert drafted["after"] > 450


def test_of_n_grams_long_matches_go_on_and_short_ones_are_dropped() -> None:
    def lookup(at: int) -> tuple[Certainty, bool] | None:
        place = at % 40
        if place < 10:
            return Certainty(0.0, 1.0, 1.0, matched=2), False  # by chance, never right
        return (Certainty(0.0, 1.0, 1.0, matched=16), True) if place < 30 else None

    gain, rounds = speed_up(2000, lambda at: 1e-6, lookup)
    # Of 40 tokens 20 are foretold: drafts of up to 20 leave 20 passes over one token and one over 21.
    assert gain > 0.93 * 40 / (20 + 3)
    late = rounds[len(rounds) // 2 :]
    assert max(played.accepted for played in late) >= 15
    assert sum(played.drafted - played.accepted for played in late) <= 0.25 * 250  # of short matches


def test_rates_are_those_of_tokens_alike() -> None:
    rates, sure, unsure = AcceptanceRates(), Certainty(0.1, 0.95, 0.95), Certainty(2.0, 0.35, 0.35)
    assert rates.lately == EXPECTED
    assert rates.of(sure) > rates.of(unsure)
    for _ in range(100):
        rates.add([sure, unsure, sure], 3, 1)  # the last one is behind a refused one, and does not count
    assert rates.of(sure) > 0.97
    assert rates.of(unsure) < 0.1
    assert rates.lately == pytest.approx(
        (WEIGHT * EXPECTED + 20) / (WEIGHT + 40), abs=0.01
    )  # 20 rounds weigh
    assert rates.behind(sure) == rates.lately
    short, long = Certainty(0, 1, 1, matched=2), Certainty(0, 1, 1, matched=30)
    assert rates.of(short) == pytest.approx(2 / 3)
    assert rates.of(long) == pytest.approx(30 / 31)
    assert rates.behind(short) == rates.of(Certainty(0, 1, 1, matched=3))


def test_passes_are_a_line_whatever_interrupts_them() -> None:
    costs = OnlineCosts()
    for _ in range(40):
        costs.add(0, 0, 1, 1, Spent(0, 0, 0.010))
        for n in (1, 2, 5, 9):
            costs.add(n, n, n, 1, Spent(0.002, 0.001 * (n - 1), 0.011 + 0.002 * (n - 1)))
    two, slope = costs.line()
    assert two == pytest.approx(0.011, rel=0.02)
    assert slope == pytest.approx(0.002, rel=0.05)
    assert (costs.of_first, costs.of_further) == pytest.approx((0.002, 0.001))
    before = costs.alone.seconds
    costs.add(0, 0, 1, 1, Spent(0, 0, 10.0))
    assert costs.alone.seconds <= before * (1 + 0.1 * (MOST - 1) + 0.01)


def test_a_prompt_that_the_draft_reads_is_no_token() -> None:
    costs = OnlineCosts()
    costs.add(0, 0, 1, 1, Spent(0, 0, 0.010))
    costs.add(1, 1, 1, 1, Spent(0.002, 0, 0.011))
    costs.add(1, 1, 1, 1000, Spent(0.502, 0, 0.011))
    assert costs.of_first == pytest.approx(0.002)
    assert costs.of_reading(2000) == pytest.approx(1.0)
    assert costs.of_reading(2) == 0
