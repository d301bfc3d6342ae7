"""The file of finished completions: what is no completion of the model in it is passed over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pyquant.generation.structured.series import read_texts

LINE: dict[str, Any] = {
    "task": "arithmetic", "technique": "free", "sample": 1, "name": "n", "text": "é", "tokens": [2, 3],
    "finish": "end", "log_p": [-1.5, -2.0], "allowed": [1.0],
}  # fmt: skip
N_VOCAB = 4


def test_a_line_is_a_completion(tmp_path: Path) -> None:
    file = tmp_path / "series.jsonl"
    file.write_text(json.dumps(LINE) + "\n" + json.dumps(LINE)[:-9])
    ((place, sample),) = read_texts(file, N_VOCAB).items()
    assert place == ("arithmetic", "free", 1)
    assert (sample.text, sample.tokens, sample.log_p, sample.finish) == ("é", [2, 3], [-1.5, -2.0], "end")
    assert read_texts(tmp_path / "none.jsonl", N_VOCAB) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"task": ["x"]}, {"technique": {}}, {"sample": "1"}, {"sample": -1}, {"sample": [1]},
        {"tokens": [N_VOCAB]},
        {"tokens": [-1]}, {"tokens": ["2"]}, {"tokens": 2}, {"log_p": ["x"]}, {"log_p": None},
        {"allowed": [None]},
        {"allowed": [float("nan")]}, {"text": 1}, {"text": "\ud800"}, {"finish": 1}, {"more": 1},
        {"name": None},
    ],
)  # fmt: skip
def test_a_damaged_line_is_passed_over(change: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "series.jsonl"
    file.write_text(json.dumps(LINE | change) + "\n" + "[" * 100_000 + "\n" + "3\n")
    assert read_texts(file, N_VOCAB) == {}
