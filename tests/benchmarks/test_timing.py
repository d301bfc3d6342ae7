"""Timing: ratios are of rounds, memory is that of all processes of a command."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote

import pytest

from benchmarks.timing import Runs, interleave, row, versus

LARGE = "held = bytearray(10**8); import time; time.sleep(.3)"


def test_a_ratio_has_the_spread_of_its_rounds() -> None:
    expected = {"peer": "cp", "times_as_fast": 2.5, "low": 2.0, "high": 3.0}
    assert versus("cp", [2.0, 9.0], [1.0, 3.0]) == expected
    ours, theirs = Runs("ours", [], seconds=[1.0, 3.0], peak_bytes=10**6), Runs("cp", [], seconds=[2.0, 9.0])
    assert row(ours, theirs, 4 * 10**9) == {
        "command": "ours", "seconds": 2.0, "gb_per_second": 2.0, "peak_mb": 1.0, **expected,
    }  # fmt: skip


@pytest.mark.parametrize(
    "command", [[sys.executable, "-c", LARGE], ["sh", "-c", f"{quote(sys.executable)} -c '{LARGE}'\ntrue"]]
)
def test_memory_is_that_of_all_processes(command: list[str]) -> None:
    runs = Runs("large", command)
    runs.run()
    assert 1e8 < runs.own_bytes <= runs.peak_bytes < 3e8


def test_commands_take_turns_after_a_round_that_does_not_count(tmp_path: Path) -> None:
    log = tmp_path / "log"
    commands = [Runs(name, ["sh", "-c", f"echo {name} >>{quote(str(log))}"]) for name in "ab"]
    interleave(commands, 2)
    assert log.read_text().split() == [*"ababab"]
    assert [len(command.seconds) for command in commands] == [2, 2]
