"""Policies replayed on records: by hand, and beside what drafting really does."""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pyquant import data
from pyquant.errors import ConfigError
from pyquant.generation.sampling.generate import make_plan
from pyquant.generation.sampling.prompt import read_prompts
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import Session
from pyquant.generation.speculative.policies import FAMILIES, make_policy
from pyquant.generation.speculative.policies.costs import Costs
from pyquant.generation.speculative.record.make_record import Wanted, make_record
from pyquant.generation.speculative.record.record import Along, Record, read_record
from pyquant.generation.speculative.replay.calibrate import calibrate
from pyquant.generation.speculative.replay.predict import predict
from pyquant.generation.speculative.replay.search import search
from pyquant.generation.speculative.replay.simulate import NONE, ORACLE, Simulation
from pyquant.generation.speculative.write.ngram_draft import NgramDraft
from pyquant.generation.speculative.write.pair import NGRAM, open_draft
from pyquant.generation.speculative.write.result import DraftedText
from pyquant.generation.speculative.write.speculate import Speculation
from pyquant.llama.model import Model
from pyquant.quantize.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.draft_source import SOURCE

COSTS = Costs(0.004, tuple(0.010 + 0.001 * n for n in range(32)), ("t", "d"))


def text(accepted: str, *, ended: bool = False, entropy: list[float] | None = None) -> Along:
    """A text whose tokens are accepted (1) or not (0)."""
    facts = np.array([float(c) for c in accepted])
    certain = np.full(len(facts), 0.9)
    entropies = np.array(entropy if entropy is not None else np.where(facts == 1, 0.5, 3.0))
    return Along(0, 0, ended, SOURCE.max_tokens, entropies, certain, certain, facts, facts)


def simulation(*texts: Along) -> Simulation:
    return Simulation(Record(SOURCE, list(texts)), COSTS)


def test_a_fixed_length_by_hand() -> None:
    # The first token comes from the prompt. Drafts of 2: [1 1] brings 3; [0 1] 1; [1 0] 2; and at the end
    # there is room for one: [1] brings 2.
    done = simulation(text("111101011"))
    result = done.run("fixed:k=2")
    assert done.rounds("fixed:k=2") == [[(2, 2), (2, 0), (2, 1), (1, 1)]]
    assert (result.tokens, result.rounds, result.calls, result.drafted, result.accepted) == (8, 4, 7, 7, 4)
    seconds = 7 * 0.004 + 3 * 0.012 + 0.011
    assert result.ms_per_token == pytest.approx(1000 * seconds / 8)
    assert result.gain == pytest.approx(0.010 * 8 / seconds)
    assert result.tokens_per_round == 2
    assert result.acceptance == pytest.approx(4 / 7)
    # After the first round, in which all were accepted, the draft has a token more to read.
    further = Simulation(done.record, replace(COSTS, further=0.003)).run("fixed:k=2")
    assert further.ms_per_token == pytest.approx(1000 * (seconds + 0.003) / 8)


def test_a_text_that_ends_needs_no_token_behind_its_draft() -> None:
    assert simulation(text("1111", ended=True)).rounds("fixed:k=9") == [[(3, 3)]]
    assert simulation(text("1111")).rounds("fixed:k=9") == [[(2, 2)]]


def test_costs_of_other_models_are_refused_but_for_a_prediction() -> None:
    record = Record(SOURCE, [text("111")])
    for models, message in [
        (("t", "x"), "another draft"),
        (("x", "d"), "another target"),
        (None, "do not say of which models"),
    ]:
        costs = dataclasses.replace(COSTS, models=models)
        with pytest.raises(ConfigError, match=message):
            Simulation(record, costs)
        predicted = Simulation(record, costs, other_models=True).run("fixed")
        assert predicted == simulation(text("111")).run("fixed")


def test_a_dropped_token_is_paid_for_and_not_verified() -> None:
    done = simulation(text("111011"))
    kept, dropped = (done.run(f"static:threshold=2.25,keep={keep},most=3") for keep in (1, 0))
    assert (kept.calls, kept.drafted, kept.accepted, kept.rounds) == (4, 4, 3, 2)
    assert (dropped.calls, dropped.drafted, dropped.accepted, dropped.rounds) == (4, 3, 3, 2)
    assert dropped.ms_per_token == pytest.approx(kept.ms_per_token - 1000 * 0.001 / 5)


def test_texts_without_a_token_behind_the_first() -> None:
    for policy in (NONE, "fixed", ORACLE):
        result = simulation(text("1"), text("")).run(policy)
        assert (result.tokens, result.rounds, result.gain) == (0, 0, 1.0)


def every_choice(accepted: str, costs: Costs = COSTS) -> float:
    """Least seconds of a text over all lengths of all its drafts."""
    best = float("inf")
    for lengths in itertools.product(range(len(accepted)), repeat=len(accepted) - 1):
        at, seconds = 1, 0.0
        for length in lengths:
            if at >= len(accepted):
                break
            length = min(length, len(accepted) - at - 1)
            run = len(accepted[at : at + length]) - len(accepted[at : at + length].lstrip("1"))
            seconds, at = seconds + costs.of_round(length), at + run + 1
        if at >= len(accepted):
            best = min(best, seconds)
    return best


@pytest.mark.parametrize("accepted", ["11111", "10101", "11011", "10000", "111011"])
def test_the_oracle_is_the_best_of_all_choices(accepted: str) -> None:
    done = simulation(text(accepted))
    found = done.run(ORACLE)
    assert found.ms_per_token * (len(accepted) - 1) == pytest.approx(1000 * every_choice(accepted))
    for policy in ["fixed:k=1", "fixed:k=2", "plus_minus", "static", NONE]:
        assert found.ms_per_token <= done.run(policy).ms_per_token + 1e-12


@pytest.mark.parametrize("accepted", ["10000", "101101", "11011"])
def test_the_oracle_drafts_what_is_refused_where_a_larger_pass_takes_less(accepted: str) -> None:
    costs = Costs(0.0005, (0.010, 0.008, 0.007, *[0.020] * 29), ("t", "d"))
    done = Simulation(Record(SOURCE, [text(accepted)]), costs)
    found = done.run(ORACLE)
    assert found.ms_per_token * (len(accepted) - 1) == pytest.approx(1000 * every_choice(accepted, costs))
    assert found.accepted <= found.drafted
    assert found.tokens == found.rounds + found.accepted
    for policy in ["fixed:k=1", "fixed:k=2", NONE]:
        assert found.ms_per_token <= done.run(policy).ms_per_token + 1e-12


def test_a_record_that_draws_accepts_by_chance_and_drops_nothing() -> None:
    drawn = replace(SOURCE, temperature=1.0)
    n = 5000
    halves = np.full(n, 0.5)
    record = Record(drawn, [Along(0, 0, False, n, np.full(n, 9.0), halves, halves, halves, halves)])
    done = Simulation(record, COSTS, seed=1)
    assert done.run("fixed:k=1").acceptance == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(n / 1.5))
    assert done.run("static:keep=0") == done.run("static:keep=0")
    assert done.run("static:keep=0").drafted == done.run("static:keep=0").calls > 0


def test_chances_are_calibrated() -> None:
    rng = np.random.default_rng(0)
    p, entropy = rng.uniform(0.05, 0.95, 20_000), rng.uniform(0, 6, 20_000)
    logit = 1.0 + 0.5 * np.log(p / (1 - p)) - 0.4 * np.sqrt(entropy)
    accepted = (rng.random(len(p)) < 1 / (1 + np.exp(-logit))).astype(float)
    found = calibrate(p, entropy, accepted)
    assert found["bias"] == pytest.approx(1.0, abs=0.1)
    assert found["slope"] == pytest.approx(0.5, abs=0.1)
    assert found["entropy"] == pytest.approx(-0.4, abs=0.1)
    assert found["mean"] == pytest.approx(accepted.mean(), abs=1e-4)
    every = calibrate(np.full(50, 1.0), np.zeros(50), np.ones(50))
    assert np.isfinite(list(every.values())).all()
    assert every["slope"] >= 0
    # Certain tokens of almost no entropy, of which one is refused: without a prior the bias is far below -20.
    few = calibrate(np.array([0.999, 0.998, 0.9999]), np.array([1e-3, 2e-3, 1e-4]), np.array([1.0, 0.0, 1.0]))
    assert all(-5 < few[name] < 5 for name in ("bias", "slope", "entropy"))


def test_a_search_tries_the_grid_and_finds_its_best() -> None:
    rng = np.random.default_rng(2)
    entropy = rng.exponential(1.5, 400)
    accepted = "".join("1" if rng.random() < np.exp(-x / 3) else "0" for x in entropy)
    done = simulation(text(accepted, entropy=entropy.tolist()))
    found = search(done, "static:most=8")
    grid = FAMILIES["static"].parameters
    assert found.grid == {
        "threshold": list(grid["threshold"].grid),
        "keep": list(grid["keep"].grid),
        "most": [8],
    }
    assert len(found.surface) == len(grid["threshold"].grid) * 2
    assert found.best.ms_per_token == min(result.ms_per_token for _, result in found.surface)
    assert found.best == done.run(found.best.policy)
    json.dumps(found.to_json(), allow_nan=False)
    with pytest.raises(ConfigError, match="no parameter 'k'"):
        search(done, "static:k=1")


def test_what_is_predicted_is_what_a_simulation_of_independent_tokens_finds() -> None:
    rng = np.random.default_rng(0)
    accepted = "".join("01"[rng.random() < 0.8] for _ in range(20_000))
    costs = replace(COSTS, further=0.003)
    done = Simulation(simulation(text(accepted)).record, costs)
    for k in (0, 1, 3, 7):
        expected = predict(0.8, costs, k)
        assert done.run(f"fixed:k={k}").gain == pytest.approx(expected.gain, rel=0.02)
        assert expected.tokens_per_round == pytest.approx((1 - 0.8 ** (k + 1)) / 0.2)
    assert predict(1.0, COSTS, 3).tokens_per_round == 4
    with pytest.raises(ConfigError, match="acceptance"):
        predict(1.1, COSTS, 3)


def test_what_a_draft_has_to_read_is_weighed_by_each_text_s_own_length() -> None:
    """Texts of several lengths are replayed together: the first one's must not count for all."""
    costs = replace(COSTS, prompt=1e-6)
    long = replace(text("1" * 200), max_tokens=200)
    alone = Simulation(simulation(long).record, costs).run("expected_value")
    assert alone.drafted > 100
    together = Simulation(simulation(replace(text("0"), max_tokens=1), long).record, costs)
    assert together.run("expected_value").drafted == alone.drafted


def test_a_thousand_samples_are_replayed_in_well_under_a_second() -> None:
    rng = np.random.default_rng(0)
    texts = [
        Along(
            n,
            0,
            False,
            25,
            *(rng.random(25) for _ in range(3)),
            (rng.random(25) < 0.85) * 1.0,
            rng.random(25),
        )
        for n in range(1000)
    ]
    done = simulation(*texts)
    for policy in [*FAMILIES, ORACLE]:
        begin = time.process_time()
        done.run(policy)
        assert time.process_time() - begin < 1, policy


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Wanted, Path]:
    """The model in the box drafted by itself in 4 bits, and a record of that."""
    folder = tmp_path_factory.mktemp("pair")
    quantize_model(data.model_path(), folder / "q4_0.gguf", make_mode({"mode": "q4_0"}))
    prompts = folder / "prompts.jsonl"
    texts = [
        *("def main(", "The module", "import os\n", "class Error(", "To install", "Once upon", "for name in"),
        *(
            "Returns",
            "# Copyright",
            "The value of",
            "if not",
            "try:\n",
            "Note that",
            "self.",
            "Added in",
            "In",
        ),
        *("A list of", "while True", "with open(", "print("),
    ]
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    made = Wanted(data.model_path(), folder / "q4_0.gguf", prompts, max_tokens=96)
    make_record(made, folder / "record", threads=1)
    return made, folder / "record"


# With plus_minus a draft's length follows from all drafts before it, so one token that comes out otherwise
# moves all behind it: several beginnings are summed up.
SLOW = [["fixed:k=4"], [f"plus_minus:start={k}" for k in range(1, 8)], ["cumulative"], ["confidence:p=0.6"]]


@pytest.mark.parametrize(
    "policies",
    [["static:keep=0"], ["expected_value"], *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)],
    ids=lambda policies: policies[0],
)
def test_a_replay_has_the_rounds_of_real_drafting(pair: tuple[Wanted, Path], policies: list[str]) -> None:
    made, record = pair
    simulation = Simulation(read_record(record), COSTS, other_models=True)
    replayed = [simulation.run(policy) for policy in policies]
    texts: list[DraftedText] = []
    with Model(made.target) as model:
        plan = make_plan(model, read_prompts(made.prompts), max_tokens=96)
        sampling = Sampling(temperature=0)
        with (
            Session(model, 1, plan.n_ctx, n_views=1, threads=1) as session,
            open_draft(made.draft, session, sampling, threads=1) as drafting,
        ):
            for policy in policies:
                writer = Speculation(session, drafting, sampling, make_policy(policy, COSTS))
                texts += writer.texts(plan)
    rounds = sum(len(text.rounds) for text in texts)
    assert sum(its.tokens for its in replayed) == sum(text.n_tokens - 1 for text in texts)
    assert sum(its.rounds for its in replayed) == pytest.approx(rounds, rel=0.03)
    accepted = sum(text.n_accepted for text in texts)
    assert sum(its.accepted for its in replayed) == pytest.approx(accepted, rel=0.03)
    # What it takes, by the same costs: tokens behind a refused one are all that a record does not know.
    seconds = sum(COSTS.of_round(n) for text in texts for n, _ in text.rounds)
    missing = sum(its.calls - its.drafted for its in replayed) * COSTS.draft  # dropped tokens, not in rounds
    foretold = sum(its.ms_per_token * its.tokens for its in replayed) / 1000
    assert foretold - missing == pytest.approx(seconds, rel=0.03)
    assert sum(text.n_drafted for text in texts) > 0


@pytest.mark.parametrize("policy", ["fixed:k=4", "confidence:p=0.6", "static"])
def test_a_replay_of_n_grams_accepts_the_very_tokens(
    pair: tuple[Wanted, Path], tmp_path: Path, policy: str
) -> None:
    made = replace(pair[0], draft=NGRAM)
    make_record(made, tmp_path / "record", threads=1)
    record = read_record(tmp_path / "record")
    assert record.source.draft_sha256 == NGRAM
    assert 0 < (record.joined("top_p") == 0).mean() < 1
    costs = replace(COSTS, models=(record.source.target_sha256, NGRAM))
    replayed = Simulation(record, costs).rounds(policy)
    with Model(made.target) as model:
        plan = make_plan(model, read_prompts(made.prompts), max_tokens=96)
        with Session(model, 1, plan.n_ctx, threads=1) as session:
            writer = Speculation(session, NgramDraft(), Sampling(temperature=0), make_policy(policy, COSTS))
            texts = list(writer.texts(plan))
    accepted = [[n for _, n in text.rounds] for text in texts]
    assert [[n for _, n in rounds] for rounds in replayed] == accepted
    assert sum(map(sum, accepted)) > 0


def test_policies_may_decide_by_other_costs_than_a_replay_counts() -> None:
    record = Record(SOURCE, [text("1" * 20)])
    dear, cheap = Costs(10.0, (1.0,) * 32), Costs(0.01, (1.0,) * 32)
    assert Simulation(record, dear, other_models=True).run("expected_value").drafted == 0
    replayed = Simulation(record, dear, decides=cheap, other_models=True).run("expected_value")
    assert replayed.drafted > 0
    assert replayed.ms_per_token > 1000


def test_gains_are_beside_tokens_of_the_target_alone() -> None:
    record = Record(SOURCE, [text("1" * 21)])
    costs = replace(COSTS, single=0.009)
    alone = Simulation(record, costs, other_models=True).run("none")
    assert alone.ms_per_token == pytest.approx(9)
    assert alone.gain == pytest.approx(1)
    drafted = Simulation(record, costs, other_models=True).run("fixed:k=1")
    assert drafted.ms_per_token == Simulation(record, COSTS, other_models=True).run("fixed:k=1").ms_per_token
    assert drafted.gain == pytest.approx(9 / drafted.ms_per_token)


def test_n_grams_go_on_behind_a_refused_token() -> None:
    says_nothing = replace(text("10000000"), top_p=np.array([0.9, 0.9, 0, 0, 0, 0, 0, 0]))
    # The first token is the prompt's. The second is refused; what is drafted behind it is in vain.
    assert simulation(says_nothing).rounds("fixed:k=3")[0][0] == (3, 0)
    # Where nothing is said before a token is drafted, none is.
    assert simulation(says_nothing).rounds("fixed:k=3")[0][1:] == [(0, 0)] * 6
