"""Policies by examples worked by hand, and what a decision takes."""

from __future__ import annotations

import timeit
from functools import reduce

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pyquant.errors import ConfigError
from pyquant.generation.speculative.policies import FAMILIES, make_policy, policy_text, read_policy
from pyquant.generation.speculative.policies.certainty import Certainty
from pyquant.generation.speculative.policies.costs import Costs
from pyquant.generation.speculative.policies.policy import Decision, History, Policy, Round
from pyquant.generation.speculative.policies.worth import STEPS, worths

FLAT = Costs(0.001, (0.01,) * 32)  # a pass costs the same whatever it verifies
STEEP = Costs(0.005, tuple(0.01 * n for n in range(1, 33)))  # each token costs as much as a pass


def after(p: list[float], entropies: list[float] | None = None, history: History | None = None) -> Round:
    """A round in which tokens of these probabilities were drafted."""
    sure = [Certainty(entropy, its, its) for entropy, its in zip(entropies or [0.0] * len(p), p)]
    return Round(sure, history if history is not None else History())


def n_drafted(
    policy: Policy,
    entropies: list[float],
    probabilities: list[float] | None = None,
    previous: list[tuple[int, int]] | None = None,
) -> tuple[int, int]:
    """Tokens that are verified, and tokens that were drafted, if the draft says this of them."""
    history = History(previous or [])
    p = probabilities or [0.5] * len(entropies)
    for n in range(len(entropies) + 1):
        decision = policy(after(p[:n], entropies[:n], history))
        if decision is not Decision.MORE:
            return n - (decision is Decision.DROP), n
    raise AssertionError("the draft goes on")


@pytest.mark.parametrize("k", [0, 1, 4])
def test_fixed(k: int) -> None:
    assert n_drafted(make_policy(f"fixed:k={k}"), [9.0] * 6) == (k, k)


@pytest.mark.parametrize(
    ("previous", "k"),
    [([], 5), ([(5, 5)], 7), ([(5, 4)], 4), ([(5, 5), (7, 0), (6, 0)], 5), ([(5, 0)] * 9, 1)],
)
def test_plus_minus(previous: list[tuple[int, int]], k: int) -> None:
    assert n_drafted(make_policy("plus_minus"), [0.0] * 9, previous=previous) == (k, k)


@pytest.mark.parametrize(("keep", "verified"), [(1, 3), (0, 2)])
def test_static(keep: int, verified: int) -> None:
    policy = make_policy(f"static:threshold=2.25,keep={keep}")
    assert n_drafted(policy, [1.0, 2.0, 2.25, 9.0]) == (verified, 3)


def test_most_tokens_of_a_draft() -> None:
    assert n_drafted(make_policy("static:most=2"), [0.0] * 4) == (2, 2)
    assert n_drafted(make_policy("static"), [0.0] * 101) == (100, 100)


def test_moving_average() -> None:
    policy = make_policy("moving_average:factor=2,n=2")
    # Squares: 81 is the first; 4 < 2 * 81; 16 < 81 + 4; 19 < 4 + 16; 36 >= 16 + 19.
    assert n_drafted(policy, [9.0, 2.0, 4.0, 19**0.5, 6.0, 0.0]) == (5, 5)
    assert n_drafted(policy, [9.0, 2.0, 4.0, 21**0.5, 0.0]) == (4, 4)
    assert n_drafted(make_policy("moving_average:keep=0"), [1.0, 0.6, 0.8]) == (2, 3)


def test_cumulative() -> None:
    # 1 + 4 + 4 = 9 < 10 <= 4 + 4 + 2.25, as n = 2 looks at three tokens.
    assert n_drafted(make_policy("cumulative:threshold=10,n=2"), [1.0, 2.0, 2.0, 1.5, 0.0]) == (4, 4)
    assert n_drafted(make_policy("cumulative:threshold=10,n=7"), [1.0, 2.0, 2.0, 1.0, 0.0]) == (4, 4)
    assert n_drafted(make_policy("cumulative:threshold=4,n=0,keep=0"), [1.9, 1.9, 2.0]) == (2, 3)


def test_p_min_drops_and_confidence_keeps() -> None:
    p = [0.9, 0.7, 0.39, 0.9]
    assert n_drafted(make_policy("p_min:p=0.4,most=9"), [0.0] * 4, p) == (2, 3)
    assert n_drafted(make_policy("p_min"), [0.0] * 4, p) == (3, 3)
    assert n_drafted(make_policy("confidence"), [0.0] * 4, p) == (3, 3)


def test_expected_value_never_drafts_where_it_cannot_pay() -> None:
    policy = make_policy("expected_value", STEEP)
    for history in ([], [(0, 0)] * 9):
        assert policy(Round(previous=History(history))) is Decision.STOP


def test_expected_value_stops_when_a_token_does_not_pay() -> None:
    # At an acceptance of 0.8 the best length is 8: 4.33 tokens in 18 ms, so 1 ms is worth 0.24 tokens.
    policy = make_policy("expected_value", FLAT)
    assert policy(after([])) is Decision.MORE
    assert policy(after([0.5])) is Decision.MORE  # 0.5 * 0.8 > 0.24
    assert policy(after([0.25])) is Decision.STOP  # 0.25 * 0.8 < 0.24, and each further one brings less
    assert policy(after([0.5, 0.5])) is Decision.STOP
    assert make_policy("expected_value:bias=20", FLAT)(after([0.5, 0.5])) is Decision.MORE


def test_expected_value_looks_beyond_a_step_of_the_costs() -> None:
    # The second token of a pass costs a whole pass more; those after it nothing.
    step = Costs(0.0001, (0.01, *[0.02] * 31))
    assert make_policy("expected_value:mean=0.7", step)(Round()) is Decision.MORE
    assert make_policy("expected_value:mean=0.4", step)(Round()) is Decision.STOP
    assert make_policy("expected_value:mean=0.7,most=1", step)(Round()) is Decision.STOP


@given(
    st.floats(0.001, 1),
    st.integers(0, STEPS),
    st.lists(st.floats(0.001, 0.05), min_size=1, max_size=12),
    st.integers(0, 6),
)
def test_expected_value_looks_at_every_length_that_could_pay(
    so_far: float, step: int, verify: list[float], drafted: int
) -> None:
    assume(step > 0 and verify[-1] >= verify[0])  # what was not measured goes on upwards
    costs, chance = Costs(0.002, tuple(verify), single=0.004, next=0.001), step / STEPS
    rounds = [0.004, *(0.001 + 0.001 * k + costs.of_pass(k + 1) for k in range(1, 30))]
    rate = max(sum(chance**n for n in range(k + 1)) / rounds[k] for k in range(len(verify)))
    ahead = range(1, len(verify) + 1)
    bring = [so_far * sum(chance**n for n in range(1, more + 1)) for more in ahead]
    takes = [rate * (rounds[drafted + more] - rounds[drafted]) for more in ahead]
    assume(all(abs(b - t) > 1e-9 for b, t in zip(bring, takes)))  # sums differ in their last bits
    worth = worths(costs, 100)[step]
    assert (so_far > worth.more[drafted]) == any(b > t for b, t in zip(bring, takes))
    if drafted:
        place = costs.of_pass(drafted + 1) - costs.of_pass(drafted)
        assert worth.place[drafted] == pytest.approx(rate * place, abs=1e-9)


def test_expected_value_drops_a_token_whose_place_costs_more_than_it_brings() -> None:
    costs = Costs(0.0001, (0.01, 0.011, 0.011, 0.012, 0.03, *[0.05] * 27))
    policy = make_policy("expected_value", costs)
    p = [0.99, 0.99, 0.99, 0.5]
    assert policy(after(p[:3])) is Decision.STOP
    assert policy(after(p)) is Decision.DROP


def test_expected_value_gives_up_after_refusals_and_tries_again() -> None:
    costs = Costs(0.004, (0.01, *[0.0101] * 31))
    policy = make_policy("expected_value", costs)
    refused = [(3, 0)] * 20
    assert policy(Round()) is Decision.MORE
    assert policy(Round(previous=History(refused))) is Decision.STOP
    assert policy(Round(previous=History(refused + [(0, 0)] * 99))) is Decision.MORE


def test_expected_value_reads_no_more_than_drafts_save() -> None:
    costs = Costs(0.001, (0.01,) * 32, prompt=0.002)
    policy = make_policy("expected_value:mean=0.9,most=1", costs)
    # A round of .011 s brings 1.9 tokens of .01 s: .0042 s of a token are saved.
    for room in (10, 100, 1000):
        assert policy(Round(unread=1, room=room)) is Decision.MORE
        assert policy(Round(unread=int(2.1 * room), room=room)) is Decision.MORE
        assert policy(Round(unread=int(2.2 * room) + 1, room=room)) is Decision.STOP
    begun = Round([Certainty(0.1, 0.99, 0.99)], unread=10**6, room=10)
    assert make_policy("expected_value:mean=0.9", costs)(begun) is Decision.MORE


def test_a_history_is_folded_as_reduce_does() -> None:
    def step(state: float, played: tuple[int, int]) -> float:
        return state * 0.5 + played[1]

    history, rounds = History(), [(4, n) for n in range(5)]
    for n, played in enumerate(rounds):
        assert history.fold(step, 1.0) == reduce(step, rounds[:n], 1.0)
        history.append(played)
    assert history.fold(step, 2.0) == reduce(step, rounds, 2.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("statik", "policy 'statik': there is none; there are auto, fixed, plus_minus, static"),
        ("static:tau=1", "policy static: has no parameter 'tau'; it has threshold: a number from 0"),
        ("static:threshold=-1", "policy static: threshold: -1 is not a number from 0"),
        ("fixed:k=1.5", "policy fixed: k: '1.5' is not a whole number from 0 to 1,024"),
        ("expected_value", "policy expected_value: needs measured costs"),
    ],
)
def test_refuses(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("[", r"\[").replace("(", r"\(")):
        make_policy(text)


def test_text_of_a_policy_is_read_back() -> None:
    assert policy_text("static", {"threshold": 2.25, "keep": 1, "most": 100}) == "static"
    text = policy_text("cumulative", {"threshold": 10.0, "n": 3, "keep": 0, "most": 8})
    assert text == "cumulative:n=3,keep=0,most=8"
    assert read_policy(text) == ("cumulative", {"threshold": 10.0, "n": 3, "keep": 0, "most": 8})


@pytest.mark.parametrize("name", FAMILIES)
def test_each_policy_tries_its_default(name: str) -> None:
    for key, parameter in FAMILIES[name].parameters.items():
        for value in (parameter.default, *parameter.grid):
            parameter.limit.check(key, value)
        assert not parameter.grid or parameter.default in parameter.grid


@pytest.mark.parametrize("name", FAMILIES)
def test_a_decision_takes_less_than_a_hundredth_of_a_draft_token(name: str) -> None:
    # A draft token of a model of 135 million weights takes some 5 ms. The best of several tries says what a
    # decision takes itself, at any load of the machine.
    policy = make_policy(name, STEEP)
    state = after([0.97] * 8, [0.1] * 8, History([(5, 4)] * 500))
    state.learned.costs.alone.add(0.01)
    policy(state)
    seconds = min(timeit.repeat(lambda: policy(state), number=20, repeat=20)) / 20
    assert seconds < 50e-6
