"""What drafting would gain on larger models: costs of all layers from those of a few."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from analysis import larger_drafts
from pyquant import data
from pyquant.generation.speculative.policies.costs import Costs
from pyquant.generation.speculative.record.make_record import Wanted, make_record
from pyquant.generation.speculative.write.pair import NGRAM


def test_costs_of_all_layers_are_on_a_straight_line() -> None:
    shape = dataclasses.replace(larger_drafts.SHAPES[0], n_layers=10, measured=(2, 4))
    few, more = Costs(1.0, (10.0, 12.0), further=0.5), Costs(1.5, (20.0, 23.0), further=0.25)
    whole = larger_drafts.of_all_layers(shape, few, more)
    assert whole.draft == pytest.approx(3.0)
    np.testing.assert_allclose(whole.verify, (50.0, 56.0))
    assert whole.further == 0  # none is less than nothing


def test_both_tables_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": "import os\n"}) + "\n")
    make_record(Wanted(data.model_path(), NGRAM, prompts, max_tokens=64), tmp_path / "pair.record", threads=1)
    small = {"n_embd": 64, "n_ff": 96, "n_head": 4, "n_head_kv": 4, "n_vocab": 320}
    shapes = [
        dataclasses.replace(shape, generated=dataclasses.replace(shape.generated, **small))
        for shape in larger_drafts.SHAPES
    ]
    monkeypatch.setattr(larger_drafts, "SHAPES", shapes)
    command = ["larger_drafts", str(tmp_path / "pair.record"), "--folder", str(tmp_path), "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", [*command, "--threads", "1"])
    larger_drafts.main()
    printed = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in printed if line.startswith("| ") and "B |" in line] == [
        "1.1 B", "8 B", "1.1 B", "8 B",
    ]  # fmt: skip
    assert not list(tmp_path.glob("larger-*"))
