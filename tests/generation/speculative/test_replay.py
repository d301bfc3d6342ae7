"""Policies replayed on records: by hand, and beside what drafting really does."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from pyquant import data
from pyquant.errors import ConfigError
from pyquant.generation.sampling.generate import make_plan
from pyquant.generation.sampling.prompt import Prompt
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import Session
from pyquant.generation.speculative.decoding.pair import NGRAM, open_draft
from pyquant.generation.speculative.decoding.result import DraftedCompletion
from pyquant.generation.speculative.decoding.speculate import Speculation
from pyquant.generation.speculative.policies import FAMILIES, make_policy
from pyquant.generation.speculative.policies.certainty import Certainty
from pyquant.generation.speculative.policies.costs import Costs
from pyquant.generation.speculative.replay.calibrate import calibrate
from pyquant.generation.speculative.replay.record import Along, Record, Said, make_record
from pyquant.generation.speculative.replay.replay import NONE, ORACLE, Replay
from pyquant.generation.speculative.replay.search import search
from pyquant.llama.model import Model
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode

COSTS = Costs(0.004, tuple(0.010 + 0.001 * n for n in range(32)))
GREEDY = Sampling(temperature=0)


def text(accepted: str, *, ended: bool = False, entropy: list[float] | None = None) -> Along:
    """A completion whose tokens are accepted (1), or not (0), or where the draft has nothing to say (-)."""
    entropies = entropy or [0.5 if c == "1" else 3.0 for c in accepted]
    said = [Said(None if c == "-" else Certainty(h, 0.9, 0.9), c == "1") for c, h in zip(accepted, entropies)]
    return Along(said, ended)


def replay_of(*texts: Along, costs: Costs = COSTS, max_tokens: int = 64) -> Replay:
    return Replay(Record(list(texts), max_tokens, drawn=False), costs)


def lengths(replay: Replay, policy: str) -> list[tuple[int, int]]:
    """Drafted and accepted tokens of each round of the first completion."""
    return [(played.drafted, played.accepted) for played in replay.rounds(policy)[0]]


def test_a_fixed_length_by_hand() -> None:
    # The first token comes from the prompt. Drafts of 2: [1 1] brings 3; [0 1] 1; [1 0] 2; and at the end
    # there is room for one: [1] brings 2.
    done = replay_of(text("111101011"))
    result = done.run("fixed:k=2")
    assert lengths(done, "fixed:k=2") == [(2, 2), (2, 0), (2, 1), (1, 1)]
    assert (result.tokens, result.rounds, result.calls, result.drafted, result.accepted) == (8, 4, 7, 7, 4)
    seconds = 7 * 0.004 + 3 * 0.012 + 0.011
    assert result.ms_per_token == pytest.approx(1000 * seconds / 8)
    assert result.gain == pytest.approx(0.010 * 8 / seconds)
    assert result.tokens_per_round == 2
    assert result.acceptance == pytest.approx(4 / 7)


def test_a_completion_that_ends_needs_no_token_behind_its_draft() -> None:
    assert lengths(replay_of(text("1111", ended=True)), "fixed:k=9") == [(3, 3)]
    assert lengths(replay_of(text("1111")), "fixed:k=9") == [(2, 2)]


def test_a_dropped_token_is_paid_for_and_not_verified() -> None:
    done = replay_of(text("111011"))
    kept, dropped = (done.run(f"static:threshold=2.25,keep={keep},most=3") for keep in (1, 0))
    assert (kept.calls, kept.drafted, kept.accepted, kept.rounds) == (4, 4, 3, 2)
    assert (dropped.calls, dropped.drafted, dropped.accepted, dropped.rounds) == (4, 3, 3, 2)
    assert dropped.ms_per_token == pytest.approx(kept.ms_per_token - 1000 * 0.001 / 5)
    drawn = Replay(replace(done.record, drawn=True), COSTS).run("static:threshold=2.25,keep=0,most=3")
    assert replace(drawn, policy=kept.policy) == kept  # where tokens are drawn none is dropped


def test_completions_without_a_token_behind_the_first() -> None:
    for policy in (NONE, "fixed", ORACLE):
        result = replay_of(text("1"), text("")).run(policy)
        assert (result.tokens, result.rounds, result.gain) == (0, 0, 1.0)


def every_choice(accepted: str, costs: Costs = COSTS) -> float:
    """Least seconds of a completion over all lengths of all its drafts."""
    best = float("inf")
    for chosen in itertools.product(range(len(accepted)), repeat=len(accepted) - 1):
        at, seconds = 1, 0.0
        for length in chosen:
            if at >= len(accepted):
                break
            length = min(length, len(accepted) - at - 1)
            run = len(accepted[at : at + length]) - len(accepted[at : at + length].lstrip("1"))
            seconds, at = seconds + costs.of_round(length), at + run + 1
        if at >= len(accepted):
            best = min(best, seconds)
    return best


@pytest.mark.parametrize("accepted", ["11111", "10101", "11011", "10000", "111011"])
@pytest.mark.parametrize("costs", [COSTS, Costs(0.0005, (0.010, 0.008, 0.007, *[0.020] * 29))])
def test_the_oracle_is_the_best_of_all_choices(accepted: str, costs: Costs) -> None:
    """A refused token is drafted too where a larger pass takes less, as with the second costs."""
    done = replay_of(text(accepted), costs=costs)
    found = done.run(ORACLE)
    assert found.ms_per_token * (len(accepted) - 1) == pytest.approx(1000 * every_choice(accepted, costs))
    assert found.accepted <= found.drafted
    assert found.tokens == found.rounds + found.accepted
    for policy in ["fixed:k=1", "fixed:k=2", "plus_minus", "static", NONE]:
        assert found.ms_per_token <= done.run(policy).ms_per_token + 1e-12


def test_chances_are_calibrated() -> None:
    rng = np.random.default_rng(0)
    p, entropy = rng.uniform(0.05, 0.95, 20_000), rng.uniform(0, 6, 20_000)
    logit = 1.0 + 0.5 * np.log(p / (1 - p)) - 0.4 * np.sqrt(entropy)
    accepted = rng.random(len(p)) < 1 / (1 + np.exp(-logit))
    found = calibrate([(Certainty(h, x, x), its) for h, x, its in zip(entropy, p, accepted)])
    assert found == {"bias": pytest.approx(1.0, abs=0.1), "slope": pytest.approx(0.5, abs=0.1),
                     "entropy": pytest.approx(-0.4, abs=0.1)}  # fmt: skip
    every = calibrate([(Certainty(0.0, 1.0, 1.0), True)] * 50)
    assert np.isfinite(list(every.values())).all()
    assert every["slope"] >= 0
    assert np.isfinite(list(calibrate([]).values())).all()
    # Certain tokens of almost no entropy, of which one is refused: without a prior the bias is far below -20.
    certain = [Certainty(1e-3, 0.999, 1), Certainty(2e-3, 0.998, 1), Certainty(1e-4, 0.9999, 1)]
    few = calibrate(list(zip(certain, (True, False, True))))
    assert all(-5 < few[name] < 5 for name in ("bias", "slope", "entropy"))


def test_a_search_tries_the_grid_and_finds_its_best() -> None:
    rng = np.random.default_rng(2)
    entropy = rng.exponential(1.5, 400)
    accepted = "".join("1" if rng.random() < np.exp(-x / 3) else "0" for x in entropy)
    done = replay_of(text(accepted, entropy=entropy.tolist()))
    found = search(done, "static:most=8")
    thresholds = FAMILIES["static"].parameters["threshold"].grid
    tried = [done.run(f"static:most=8,threshold={x},keep={keep}") for x in thresholds for keep in (0, 1)]
    assert found.ms_per_token == min(its.ms_per_token for its in tried)
    assert found == done.run(found.policy)
    json.dumps(asdict(found), allow_nan=False)
    assert "slope=" in search(done, "expected_value").policy
    assert "slope=" not in search(done, "expected_value:bias=0").policy
    with pytest.raises(ConfigError, match="no parameter 'k'"):
        search(done, "static:k=1")


def test_a_thousand_samples_are_replayed_in_well_under_a_second() -> None:
    rng = np.random.default_rng(0)
    texts = [text("".join("01"[x < 0.85] for x in rng.random(25).tolist())) for _ in range(1000)]
    done = replay_of(*texts, max_tokens=25)
    for policy in [*FAMILIES, ORACLE]:
        begin = time.process_time()
        done.run(policy)
        assert time.process_time() - begin < 1, policy


def test_policies_may_decide_by_other_costs_than_a_replay_counts() -> None:
    record = replay_of(text("1" * 20)).record
    dear, cheap = Costs(10.0, (1.0,) * 32), Costs(0.01, (1.0,) * 32)
    assert Replay(record, dear).run("expected_value").drafted == 0
    replayed = Replay(record, dear, decides=cheap).run("expected_value")
    assert replayed.drafted > 0
    assert replayed.ms_per_token > 1000


def test_gains_are_beside_tokens_of_the_target_alone() -> None:
    done = replay_of(text("1" * 21), costs=replace(COSTS, single=0.009))
    alone, drafted = done.run(NONE), done.run("fixed:k=1")
    assert (alone.ms_per_token, alone.gain) == (pytest.approx(9), pytest.approx(1))
    assert drafted.ms_per_token == replay_of(text("1" * 21)).run("fixed:k=1").ms_per_token
    assert drafted.gain == pytest.approx(9 / drafted.ms_per_token)


def test_n_grams_go_on_behind_a_refused_token() -> None:
    # The first token is the prompt's. The second is refused; what is drafted behind it is in vain.
    # Where nothing is said before a token is drafted, none is.
    assert lengths(replay_of(text("10------")), "fixed:k=3") == [(3, 0)] + [(0, 0)] * 6


BEGINNINGS = [
    "def main(", "The module", "import os\n", "class Error(", "To install", "Once upon", "for name in",
    "Returns", "# Copyright", "The value of", "if not", "try:\n", "Note that", "self.", "Added in", "In",
    "A list of", "while True", "with open(", "print(",
]  # fmt: skip
PROMPTS = [Prompt(beginning) for beginning in BEGINNINGS]


@pytest.fixture(scope="module")
def q4_0(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pair") / "q4_0.gguf"
    quantize_model(data.model_path(), path, make_mode({"mode": "q4_0"}))
    return path


@pytest.fixture(scope="module")
def record(q4_0: Path) -> Record:
    """The bundled model drafted by itself in 4 bits."""
    return make_record(data.model_path(), q4_0, PROMPTS, sampling=GREEDY, max_tokens=96, threads=1)


def written(draft: Path | str, policies: list[str], sampling: Sampling = GREEDY) -> list[DraftedCompletion]:
    texts: list[DraftedCompletion] = []
    with Model(data.model_path()) as model:
        plan = make_plan(model, PROMPTS, max_tokens=96)
        with (
            Session(model, 1, plan.n_ctx, n_views=1, threads=1) as session,
            open_draft(draft, session, sampling, threads=1) as its_draft,
        ):
            for policy in policies:
                texts += Speculation(session, its_draft, sampling, make_policy(policy, COSTS)).completions(
                    plan
                )
    return texts


# With plus_minus a draft's length follows from all drafts before it, so one token that comes out otherwise
# moves all behind it: several beginnings are summed up.
SLOW = [["fixed:k=4"], [f"plus_minus:start={k}" for k in range(1, 8)], ["cumulative"], ["confidence:p=0.6"]]


@pytest.mark.parametrize(
    "policies",
    [["static:keep=0"], ["expected_value"], *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)],
    ids=lambda policies: policies[0],
)
def test_a_replay_has_the_rounds_of_real_drafting(q4_0: Path, record: Record, policies: list[str]) -> None:
    replay = Replay(record, COSTS)
    replayed = [replay.run(policy) for policy in policies]
    texts = written(q4_0, policies)
    rounds = sum(len(text.rounds) for text in texts)
    assert sum(its.tokens for its in replayed) == sum(text.n_tokens - 1 for text in texts)
    assert sum(its.rounds for its in replayed) == pytest.approx(rounds, rel=0.03)
    accepted = sum(text.n_accepted for text in texts)
    assert sum(its.accepted for its in replayed) == pytest.approx(accepted, rel=0.03)
    # What it takes, by the same costs: tokens behind a refused one are all that a record does not know.
    seconds = sum(COSTS.of_round(its.calls, its.drafted) for text in texts for its in text.rounds)
    assert sum(its.ms_per_token * its.tokens for its in replayed) / 1000 == pytest.approx(seconds, rel=0.03)
    assert sum(text.n_drafted for text in texts) > 0


@pytest.mark.parametrize("policy", ["fixed:k=4", "confidence:p=0.6", "static"])
def test_a_replay_of_n_grams_accepts_the_very_tokens(policy: str) -> None:
    record = make_record(data.model_path(), NGRAM, PROMPTS, sampling=GREEDY, max_tokens=96, threads=1)
    assert 0 < len(record.drafted) < record.n_tokens
    replayed = [[its.accepted for its in rounds] for rounds in Replay(record, COSTS).rounds(policy)]
    accepted = [[its.accepted for its in text.rounds] for text in written(NGRAM, [policy])]
    assert replayed == accepted
    assert sum(map(sum, accepted)) > 0


@pytest.mark.ci
def test_drawn_completions_are_accepted_as_often_as_in_earnest(q4_0: Path) -> None:
    sampling = Sampling(temperature=1, seed=3)
    record = make_record(data.model_path(), q4_0, PROMPTS, sampling=sampling, max_tokens=96, threads=1)
    assert record.drawn
    replayed, texts = Replay(record, COSTS).run("fixed:k=2"), written(q4_0, ["fixed:k=2"], sampling)
    accepted = sum(text.n_accepted for text in texts) / sum(text.n_drafted for text in texts)
    assert replayed.acceptance == pytest.approx(accepted, abs=0.05)
