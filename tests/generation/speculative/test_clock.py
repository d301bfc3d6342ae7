"""What drafting has lost by the clock, and that it is bounded however wrong costs are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyquant.generation.speculative.policies import make_policy
from pyquant.generation.speculative.policies.certainty import Certainty
from pyquant.generation.speculative.policies.clock import PRIOR, Clock
from pyquant.generation.speculative.policies.costs import Costs
from pyquant.generation.speculative.policies.expected_value import STAKE
from pyquant.generation.speculative.policies.learned import Learned
from pyquant.generation.speculative.policies.policy import LONGEST, Decision, Round
from pyquant.generation.speculative.replay.record import Along, Record, Said
from pyquant.generation.speculative.replay.replay import NONE, Replay

ALONE = 0.01  # seconds of a token without a draft
CHEAP = Costs(0.001, (ALONE, *[0.011] * 15), prompt=0.001)


def test_a_loss_is_counted_in_tokens_without_a_draft() -> None:
    clock = Clock()
    assert clock.lost(ALONE) == 0
    clock.add(3, 2, 0.05)
    assert clock.lost(ALONE) == pytest.approx(3)  # two tokens in the time of five
    clock.add(3, 4, 0.01)
    assert clock.lost(ALONE) == pytest.approx(0)
    assert (clock.tokens, clock.drafted_tokens, clock.alone_tokens) == (6, 6, 0)


def test_tokens_that_are_measured_outweigh_costs() -> None:
    clock = Clock()
    clock.add(3, 2, 0.05)
    for _ in range(8):
        clock.add(0, 1, 0.02)
    few = clock.lost(ALONE)
    for _ in range(800):
        clock.add(0, 1, 0.02)
    # At 20 ms each 0.05 s are 2.5 tokens, of which there are two.
    assert 0.5 < clock.lost(ALONE) < few < 3
    assert clock.alone_tokens == pytest.approx(1 / (1 - 0.98), rel=1e-6)
    weighed = (PRIOR * ALONE + clock.alone_seconds) / (PRIOR + clock.alone_tokens)
    assert clock.lost(ALONE) == pytest.approx(0.05 / weighed - 2)


def test_no_draft_begins_while_too_much_is_lost() -> None:
    policy = make_policy("expected_value:loss=0.02", CHEAP)
    for lost, decision in ((0.02 * STAKE - 1, Decision.MORE), (0.02 * STAKE + 1, Decision.STOP)):
        clock = Clock()
        clock.add(1, 1, ALONE * (lost + 1))
        assert policy(Round(learned=Learned(clock=clock))) is decision
    clock.add(0, 100, 100 * ALONE)  # more is generated, so more may be lost
    assert policy(Round(learned=Learned(clock=clock))) is Decision.MORE


def record(chance: float, seed: int, n_completions: int = 6, n: int = 400) -> Record:
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(n_completions):
        p, entropy = np.clip(rng.beta(4, 1, n), 0.01, 0.99).tolist(), rng.exponential(1.0, n).tolist()
        accepted = (rng.random(n) < chance).tolist()
        said = [Said(Certainty(h, x, x), its) for h, x, its in zip(entropy, p, accepted)]
        texts.append(Along(said, ended=False))
    return Record(texts, n, drawn=False)


@given(
    st.floats(0, 1),
    st.integers(0, 1000),
    st.floats(0.0005, 0.03),
    st.lists(st.floats(0.01, 0.05), min_size=3, max_size=15),
    st.sampled_from([0.0, 0.01, 0.05]),
)
def test_what_drafts_lose_is_bounded_however_wrong_costs_are(
    chance: float, seed: int, draft: float, verify: list[float], loss: float
) -> None:
    """Costs say that drafts are cheap, and what they take is anything."""
    true = Costs(draft, (ALONE, *verify))
    replay = Replay(record(chance, seed), true, CHEAP)
    alone, drafted = replay.run(NONE), replay.run(f"expected_value:loss={loss}")
    lost = (drafted.ms_per_token - alone.ms_per_token) * alone.tokens / 1000
    # What a round loses is known behind it.
    assert lost <= ALONE * loss * (STAKE + alone.tokens) + true.of_round(LONGEST) + 1e-9


def test_a_draft_that_pays_is_never_stopped() -> None:
    true = replace(CHEAP, draft=0.002)
    replay = Replay(record(0.9, 1), true, CHEAP)
    bounded, free = (replay.run(f"expected_value:loss={loss}") for loss in (0.01, 1))
    assert replace(bounded, policy="") == replace(free, policy="")
    assert bounded.gain > 1.5
