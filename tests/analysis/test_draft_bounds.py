"""What rules that end a draft could gain, by how much they know."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from analysis import draft_bounds
from pyquant import data
from pyquant.generation.speculative.policies.costs import SCHEMA, Costs
from pyquant.generation.speculative.record.make_record import Wanted, make_record
from pyquant.generation.speculative.record.record import Along, Record, read_record
from pyquant.generation.speculative.replay.predict import predict
from pyquant.generation.speculative.replay.simulate import ORACLE, Simulation
from pyquant.generation.speculative.write.pair import NGRAM
from tests.support.draft_source import SOURCE

COSTS = Costs(0.003, tuple(0.010 + 0.0008 * n for n in range(32)))


def text(accepted: np.ndarray) -> Along:
    half = np.full(len(accepted), 0.5)
    return Along(0, 0, False, len(accepted), half, half, half, accepted.astype(float))


@pytest.mark.parametrize("chance", [0.1, 0.6, 0.8, 0.95])
def test_with_equal_chances_the_best_stopping_is_the_best_fixed_length(chance: float) -> None:
    gain = draft_bounds.gain_of_best_stopping(COSTS, np.full(50, chance))
    best = max(predict(chance, COSTS, k).gain for k in range(60))
    # At the end of a draft a last token may be dropped, which a fixed length does not; here none is.
    assert gain == pytest.approx(best, rel=1e-3)


def test_chances_that_differ_are_worth_more_than_their_mean() -> None:
    differ = draft_bounds.gain_of_best_stopping(COSTS, np.array([0.5] * 30 + [1.0] * 70))
    assert differ > 1.05 * draft_bounds.gain_of_best_stopping(COSTS, np.full(50, 0.85))


def test_who_knows_all_acceptances_is_the_oracle() -> None:
    accepted = np.random.default_rng(0).random(300) < 0.8
    simulation = Simulation(Record(SOURCE, [text(accepted)]), COSTS, other_models=True)
    seconds = draft_bounds.seconds_with_foresight(
        text(accepted), accepted, np.clip(accepted, 1e-9, 1 - 1e-9), COSTS
    )
    oracle = simulation.run(ORACLE)
    assert 1000 * seconds / oracle.tokens == pytest.approx(oracle.ms_per_token, rel=1e-6)
    unsure = draft_bounds.seconds_with_foresight(text(accepted), accepted, np.full(300, 0.8), COSTS)
    length = max(range(9), key=lambda k: predict(0.8, COSTS, k).gain)
    fixed = simulation.run(f"fixed:k={length}").ms_per_token
    assert seconds < unsure == pytest.approx(fixed * oracle.tokens / 1000, rel=0.02)


def test_a_chance_that_tells_of_the_next_token_is_correlated_with_it() -> None:
    rng = np.random.default_rng(0)
    accepted = [rng.random(2000) < 0.8 for _ in range(3)]
    nothing = [rng.random(2000) for _ in accepted]
    assert abs(draft_bounds.correlation_with_next(accepted, nothing)) < 0.05
    telling = [np.append(facts[1:], False).astype(float) for facts in accepted]
    assert draft_bounds.correlation_with_next(accepted, telling) == pytest.approx(1)


def test_a_table_of_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts, path = tmp_path / "prompts.jsonl", tmp_path / "pair.record"
    prompts.write_text(json.dumps({"prompt": "import os\n"}) + "\n")
    make_record(Wanted(data.model_path(), NGRAM, prompts, max_tokens=64), path, threads=1)
    content = {
        "schema": SCHEMA,
        "target": {"sha256": read_record(path).source.target_sha256},
        "draft": {"sha256": NGRAM, "seconds": 0.0001},
        "verify": [{"seconds": 0.01}] * 8,
    }
    (tmp_path / "costs.json").write_text(json.dumps(content))
    monkeypatch.setattr(sys, "argv", ["draft_bounds", str(path), "--costs", str(tmp_path / "costs.json")])
    draft_bounds.main()
    cells = capsys.readouterr().out.splitlines()[2].split(" | ")
    assert cells[0] == "| pair.record"
    gains = [float(cell.strip("| ")) for cell in cells[3:]]
    assert 1 <= gains[0] <= gains[3]
