"""Files of costs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pyquant import data
from pyquant.errors import ConfigError
from pyquant.generation.speculative.decoding.pair import check_both
from pyquant.generation.speculative.measure.measure_costs import measure_costs
from pyquant.generation.speculative.policies.costs import SCHEMA, Costs, costs_from, read_costs


def test_costs_are_read(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    content = {"schema": SCHEMA, "draft": {"seconds": 0.5}, "verify": [{"seconds": 1}, {"seconds": 1.5}]}
    path.write_text(json.dumps(content))
    assert read_costs(path) == Costs(0.5, (1, 1.5))
    content |= {"alone": {"seconds": 0.75}, "target": {"sha256": "t"}}
    content["draft"] |= {"next": {"seconds": 0.25}, "prompt": {"seconds": 0.125}, "model": "ngram"}
    path.write_text(json.dumps(content))
    assert read_costs(path) == Costs(0.5, (1, 1.5), ("t", "ngram"), single=0.75, next=0.25, prompt=0.125)


def test_a_round_takes_its_draft_and_its_pass() -> None:
    costs = Costs(0.5, (1, 1.5, 2.25), single=0.75)
    assert costs.of_round(0) == costs.alone == 0.75
    assert costs.of_round(2) == 2 * 0.5 + 2.25
    assert costs.of_round(2, 1) == 2 * 0.5 + 1.5  # the last one is dropped
    assert costs.of_round(1, 0) == 0.5 + 1
    assert replace(costs, single=None).of_round(0) == 1
    faster = replace(costs, next=0.25)
    assert faster.of_round(2) == 0.5 + 0.25 + 2.25
    assert costs.of_round(4) == 4 * 0.5 + 1 + 1.25 / 2 * 4  # a pass that was not measured


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as an output of `pyquant draft costs`"),
        ("[]", "is no output of `pyquant draft costs`"),
        ('{"schema": "pyquant.speed/1"}', "is no output"),
        ('{"schema": "%s"}', "a time is missing"),
        ('{"schema": "%s", "draft": {"seconds": 1}, "verify": []}', "above 0"),
        ('{"schema": "%s", "draft": {"seconds": -1}, "verify": [{"seconds": 1}]}', "above 0"),
        ('{"schema": "%s", "draft": {"seconds": NaN}, "verify": [{"seconds": 1}]}', "above 0"),
        (
            '{"schema": "%s", "draft": {"seconds": 1' + "0" * 400 + '}, "verify": [{"seconds": 1}]}',
            "cannot be read as an output of `pyquant draft costs`",
        ),
        (
            '{"schema": "%s", "draft": {"seconds": 1, "prompt": {"seconds": -1}}, '
            '"verify": [{"seconds": 1}]}',
            "above 0",
        ),
        ('{"schema": "%s", "draft": {"seconds": 1}, "verify": [{"seconds": 1}], "alone": 1}', "is no number"),
        (
            '{"schema": "%s", "draft": {"seconds": 1}, "verify": [{"seconds": 1}], "alone": {"seconds": 0}}',
            "above 0",
        ),
        ('{"schema": "%s", "draft": [1], "verify": 3}', "is no number"),
        ('{"schema": "%s", "draft": {"seconds": 1}, "verify": 3}', "is no number"),
        ('{"schema": "%s", "draft": {"seconds": "x"}, "verify": [{"seconds": 1}]}', "is no number"),
    ],
)
def test_other_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text(text.replace("%s", SCHEMA))
    with pytest.raises(ConfigError, match=message) as refused:
        read_costs(path)
    assert str(path) in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.json"):
        read_costs(tmp_path / "nowhere.json")


def test_costs_say_how_much_was_read_and_of_which_models(tmp_path: Path) -> None:
    measured = measure_costs(data.model_path(), "ngram", rounds=1, depth=20, threads=1)
    assert measured["depth"] == 20
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(measured))
    costs = read_costs(path)
    assert costs == costs_from(measured)
    assert None not in (costs.single, costs.next)
    check_both(data.model_path(), "ngram", 20, costs)
    assert len(costs.verify) == 32
    with pytest.raises(ConfigError, match="another target"):
        check_both(data.model_path(), "ngram", 20, replace(costs, models=("x", "ngram")))
    with pytest.raises(ConfigError, match="do not say of which models"):
        check_both(data.model_path(), "ngram", 20, replace(costs, models=None))
    with pytest.raises(ConfigError, match="depth"):
        measure_costs(data.model_path(), "ngram", depth=3)


def test_a_draft_that_would_draft_nothing_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyquant.generation.speculative.measure.measure_costs.draft_ctx", lambda *_: 40)
    with pytest.raises(ConfigError, match=r"was trained with 40 tokens, .* give at most 8"):
        measure_costs(data.model_path(), data.model_path(), depth=20)
