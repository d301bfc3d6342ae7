"""What is counted of a study of drafts, on measurements whose counts are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from analysis import draft_study
from pyquant.study.results.read import Measurement, ModelResults, RowResults

POLICIES = {"plus_minus": 0.9, "cumulative:threshold=3": 1.1, "expected_value:bias=1": 1.2}


def ran(policy: str, ratio: float) -> dict[str, Any]:
    drafted = 0 if ratio == 1 else 7
    return {"policy": policy, "ratio": ratio, "ratio_low": 0.9, "ratio_high": 1.3, "drafted": drafted}


def took(target: str, ratios: dict[str, float]) -> dict[str, Any]:
    """What drafting took for a target; replays are 2 % slower than the clock."""
    seconds = [{"seconds": 0.010 + 0.001 * n} for n in range(8)]
    return {
        "target": target,
        "costs": {"draft": {"seconds": 0.003}, "verify": seconds},
        "best": {"code": [{"policy": "oracle", "gain": 1.5}]},
        "runs": [
            {
                "sort": "code",
                "policies": [ran("no draft", 1.0), *(ran(name, ratio) for name, ratio in ratios.items())],
                "foretold": [{"policy": name, "measured": 10.0, "replayed": 10.2} for name in ratios],
            }
        ],
    }


def model_of(*parts: dict[str, Any]) -> ModelResults:
    measurement = Measurement("key", {"cells": []}, {"drafting": list(parts)}, None)
    row = RowResults("q4", "q4", "q4", None, {}, {"drafting": [measurement]})
    return ModelResults("m.gguf", "", [], [row])


def test_gains_of_each_target_stand_in_a_row() -> None:
    model = model_of(took("f16", POLICIES), took("q8", POLICIES | {"plus_minus": 1.3}))
    lines = draft_study.gains_table(model, list(draft_study.runs_of(model)))
    assert lines[0] == "| draft | a token | f16: code | q8: code | fastest |"
    assert lines[2:] == ["| q4 | 0.30 | 1.20 (1.50) | 1.20 (1.50) | 1 of 2 |"]


def test_runs_that_lose_and_replays_that_miss_are_counted() -> None:
    model = model_of(took("f16", POLICIES))
    lines = draft_study.policies_table(list(draft_study.runs_of(model)))
    assert lines[2:] == [
        "| expected value | 1 | 1 | 2.0 % | 2.0 % |",
        "| strategy | 1 | 1 | 2.0 % | 2.0 % |",
        "| heuristic | 1 | 0 | 2.0 % | 2.0 % |",
    ]


def test_a_study_without_runs_has_no_counts() -> None:
    part = took("f16", POLICIES) | {"runs": []}
    model = model_of(part)
    runs = list(draft_study.runs_of(model))
    assert draft_study.gains_table(model, runs)[2:] == ["| q4 | 0.30 | - | 0 of 0 |"]
    assert draft_study.policies_table(runs)[2] == "| expected value | 0 | 0 | - | - |"
    assert draft_study.below(runs) == []


def test_passes_are_the_least_and_the_most_of_all_drafts() -> None:
    fast, slow = took("f16", POLICIES), took("f16", POLICIES)
    slow["costs"]["verify"][7]["seconds"] = 0.020
    model = model_of(fast)
    rows = [model.rows[0], model_of(slow).rows[0]]
    lines = draft_study.passes_table(replace(model, rows=rows))
    assert lines[2] == "| f16 | 1.10 to 1.10 | 1.20 to 1.20 | 1.30 to 1.30 | 1.70 to 2.00 |"


def test_what_is_below_is_named_beside_chance() -> None:
    model = model_of(took("f16", {"expected_value": 0.95}), took("q8", {"expected_value": 1.0}))
    runs = list(draft_study.runs_of(model))
    assert draft_study.below(runs) == ["Below 0.98: q4, f16, code: 0.950 (0.90..1.30), 7 tokens drafted"]
    nothing = replace(runs[1], ratio=0.99)
    said = draft_study.below([*runs, nothing])[-1]
    assert said.startswith("Nothing drafted in 2 runs: mean 0.995, standard deviation 0.007")


@pytest.mark.parametrize("kind", ["static:threshold=1", "moving_average"])
def test_all_strategies_are_one_kind(kind: str) -> None:
    (its,) = draft_study.runs_of(model_of(took("f16", {kind: 1.1})))
    assert its.kind == "strategy"
