"""Files of costs."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from pyquant import data
from pyquant.errors import ConfigError
from pyquant.generation.sampling.prompt import Prompt
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.speculative.measure.cost_report import Seconds, Timed
from pyquant.generation.speculative.measure.measure_costs import measure_costs
from pyquant.generation.speculative.measure.run import run_policies
from pyquant.generation.speculative.policies.costs import SCHEMA, Costs, read_costs, unread_after
from pyquant.generation.speculative.write.pair import check_both
from pyquant.models.model_file import open_model


def test_costs_are_read(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    content = {"schema": SCHEMA, "draft": {"seconds": 0.5}, "verify": [{"seconds": 1}, {"seconds": 1.5}]}
    path.write_text(json.dumps(content))
    assert read_costs(path) == Costs(0.5, (1, 1.5))
    content["draft"] = {"seconds": 0.5, "further": 0.25}
    path.write_text(json.dumps(content))
    assert read_costs(path) == Costs(0.5, (1, 1.5), further=0.25)
    content["alone"] = {"seconds": 0.75}
    path.write_text(json.dumps(content))
    assert read_costs(path) == Costs(0.5, (1, 1.5), further=0.25, single=0.75)


def test_a_round_takes_its_draft_and_its_pass() -> None:
    costs = Costs(0.5, (1, 1.5, 2.25), further=0.25, single=0.75)
    assert costs.of_round(0) == costs.of_round(0, n_unread=3) == costs.alone == 0.75
    assert costs.of_round(2) == 2 * 0.5 + 2.25
    assert costs.of_round(2, 1, n_unread=3) == 2 * 0.5 + 2 * 0.25 + 1.5  # the last one is dropped
    assert costs.of_round(1, 0) == 0.5 + 1
    assert replace(costs, single=None).of_round(0) == 1
    faster = replace(costs, next=0.25)
    assert faster.of_round(2) == 0.5 + 0.25 + 2.25
    assert (faster.of_drafting(3), faster.of_drafting(3, begun=True)) == (1, 0.75)
    assert faster.of_drafting(0) == 0


def test_a_draft_has_two_tokens_to_read_where_all_were_accepted() -> None:
    unread = [1]
    for n_calls, n_accepted in ((3, 3), (3, 2), (3, 0), (0, 0), (0, 0), (1, 1), (4, 3)):
        unread.append(unread_after(unread[-1], n_calls, n_accepted))
    assert unread == [1, 2, 1, 1, 2, 3, 2, 1]
    costs = Costs(0.5, (1, 1.5), further=0.25)
    assert [costs.of_round(1, 1, n) for n in (1, 2, 3)] == [2, 2.25, 2.5]


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
        ('{"schema": "%s", "draft": {"seconds": 1, "further": -1}, "verify": [{"seconds": 1}]}', "further"),
        ('{"schema": "%s", "draft": {"seconds": 1, "further": NaN}, "verify": [{"seconds": 1}]}', "further"),
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
    report = measure_costs(data.model_path(), "ngram", rounds=1, depth=20, threads=1)
    assert report.to_json()["depth"] == 20
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(report.to_json()))
    assert report.costs == read_costs(path)
    check_both(data.model_path(), "ngram", 20, report.costs)
    assert len(report.timed.verify) == 32
    with pytest.raises(ConfigError, match="depth"):
        measure_costs(data.model_path(), "ngram", depth=3)


def test_costs_are_measured_again_in_turns_with_texts() -> None:
    prompts = [Prompt(text) for text in ("def main(", "import ")]
    asked = {"sampling": Sampling(temperature=0), "max_tokens": 24, "turns": 3, "threads": 1}
    model, policies = data.model_path(), ["fixed:k=2"]
    assert run_policies(model, "ngram", policies, prompts, **asked).foretold() == []
    of_models = (open_model(model).sha256(), "ngram")
    given = Costs(1.0, (1.0,), of_models)
    report = run_policies(model, "ngram", policies, prompts, costs=given, **asked)
    assert report.timed is not None
    assert {len(seconds.turns) for seconds in report.timed.verify} == {
        12
    }  # twice, behind each prompt's texts
    assert len(report.timed.verify) == 3  # of the largest pass
    for its in report.foretold():
        assert its.by_costs < 100 < 1000 * given.draft


def test_means_and_medians_of_turns() -> None:
    seconds = Seconds([1.0, 1.0, 4.0])
    timed = Timed(
        seconds,
        Seconds([0.5, 0.5, 0.5]),
        Seconds([2.0, 2.0, 5.0]),
        Seconds([0.1, 0.1, 0.4]),
        seconds,
        [seconds],
        Seconds([0.5, 0.5, 2.0]),
    )
    assert timed.costs() == Costs(1.0, (1.0,), further=1.0, single=0.5, next=0.5, prompt=0.1)
    means = Costs(2.0, (2.0,), further=1.0, single=1.0, next=0.5, prompt=pytest.approx(0.2))
    assert timed.costs(of_turns=statistics.fmean) == means
