"""Progress without a terminal: a line every 10 seconds."""

from __future__ import annotations

import pytest

from pyquant.cli import progress
from pyquant.cli.progress import Lines, count_bar, duration, phases, progress_bar
from pyquant.fit.method import expected_parts


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch):
    """Sets the clock."""
    now = [0.0]
    for module in (progress, expected_parts):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])

    def set_clock(seconds: float) -> None:
        now[0] = seconds

    return set_clock


def test_a_line_every_ten_seconds(at, capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines("model.gguf", lambda rate: f"{rate:g} tests/s")
    for second in range(60):
        at(float(second))
        lines.update(second, 120)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "model.gguf: 8%, 1 tests/s, 2 min left",
        "model.gguf: 17%, 1 tests/s, 2 min left",
        "model.gguf: 25%, 1 tests/s, 2 min left",
        "model.gguf: 33%, 1 tests/s, 1 min left",
        "model.gguf: 42%, 1 tests/s, 1 min left",
    ]


def test_bytes_and_counts(at, capsys: pytest.CaptureFixture[str]) -> None:
    at(0)
    with progress_bar("q4_0") as in_bytes, count_bar("model.gguf") as in_chunks:
        at(20)
        in_bytes(1_000_000_000, 4_000_000_000, "blk.0")
        in_chunks(5, 10, "of two")
        in_chunks(6, 10, "of two")  # too early
    assert capsys.readouterr().err.splitlines() == [
        "q4_0: 25%, 50.0 MB/s, 1 min left, blk.0",
        "model.gguf: 50%, 0.25 chunks/s, 20 s left, of two",
    ]


def test_what_was_done_before_does_not_hasten_the_rest(at, capsys: pytest.CaptureFixture[str]) -> None:
    at(0)
    with count_bar("model.gguf") as in_chunks:
        for second, done in ((1, 50), (12, 72), (22, 92)):
            at(second)
            in_chunks(done, 100)
    assert capsys.readouterr().err.splitlines() == [
        "model.gguf: 72%, 2 chunks/s, 14 s left",
        "model.gguf: 92%, 2 chunks/s, 4 s left",
    ]


def test_what_is_left_of_all_parts(at, capsys: pytest.CaptureFixture[str]) -> None:
    at(0)
    with phases() as progress:
        progress.expect(
            [("texts", 900), ("calibration", 60), ("mix", 300), ("KLD", 60), ("GPTQ", 600), ("KLD", 60)]
        )
        for second, what, done in (
            (0, "calibration", 0),  # texts were there
            (20, "calibration", 50),  # 20 s, then 1,020
            (40, "mix: errors", 0),
            (60, "mix: errors", 50),  # 280 of the mix
            (100, "mix: trials", 0),
            (400, "mix: trials", 75),  # longer than it was expected to: 100 s
            (500, "KLD", 0),
            (510, "KLD", 50),
            (520, "GPTQ", 0),
            (820, "GPTQ", 50),
            (1120, "KLD", 0),
            (1130, "KLD", 50),  # nothing follows
        ):
            at(second)
            progress(what, done, 100)
    assert capsys.readouterr().err.splitlines() == [
        "calibration: 50%, 20 s left, 17 min of all",
        "mix: errors: 50%, 20 s left, 17 min of all",
        "mix: trials: 75%, 2 min left, 14 min of all",
        "KLD: 50%, 10 s left, 11 min of all",
        "GPTQ: 50%, 5 min left, 6 min of all",
        "KLD: 50%, 10 s left",
    ]


@pytest.mark.parametrize(
    ("seconds", "says"), [(3, "3 s"), (100, "2 min"), (3600, "1 h 00 min"), (9e4, "25 h 00 min")]
)
def test_times(seconds: float, says: str) -> None:
    assert duration(seconds) == says
