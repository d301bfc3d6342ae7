"""Progress of a study without a terminal: finished tasks at once, those at work every minute."""

from __future__ import annotations

import sys

import pytest

from pyquant.cli import study_progress
from pyquant.study.run import Status


def test_lines_of_what_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(study_progress, "monotonic", lambda: now[0])
    with study_progress.study_progress() as watch:
        for second, what in ((1, "GPTQ, 1 of 9"), (59, ""), (60, "GPTQ, 3 of 9"), (61, ""), (125, "")):
            now[0] = second
            watch(Status(0, 2, 0.3, 140.0, {"model Q4_0 gptq": (0.3, what)}))
        watch(Status(1, 2, 0.5, None, {}, ("model Q4_0 gptq", 126.0)))
        watch(Status(2, 2, 1.0, 0.0, {}, ("model Q4_0 best", "no room")))
    assert capsys.readouterr().err.splitlines() == [
        "model Q4_0 gptq: 30%, GPTQ, 3 of 9; 2 min left",
        "model Q4_0 gptq: begun; 2 min left",
        "[1/2] model Q4_0 gptq: 126.0 s",
        "[2/2] model Q4_0 best: failed: no room",
    ]


def test_any_name_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with study_progress.study_progress() as watch:
        watch(Status(1, 3, 0.3, None, {"text [/i] :100:": (0.3, "GPTQ [/b]")}, ("text :100: [b]", "no room")))
    shown = capsys.readouterr().err
    assert "failed: text :100: [b]: no room" in shown
    assert "GPTQ [/b] text [/i] :100:" in shown
