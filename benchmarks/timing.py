"""Whole processes, timed in turns, so that drift of the machine meets all of them alike."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Runs:
    """One command and what its runs took. seconds: wall clock; peak_bytes: resident memory."""

    name: str
    command: Sequence[str]
    clean: Sequence[str] = ()  # files to remove before a run
    seconds: list[float] = field(default_factory=list)
    peak_bytes: int = 0
    output: str = ""

    def run(self) -> None:
        for path in self.clean:
            if os.path.exists(path):
                os.unlink(path)
        begin = time.perf_counter()
        process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout
        self.output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, self.command))} failed:\n{self.output[-2000:]}")
        self.seconds.append(time.perf_counter() - begin)
        self.peak_bytes = max(self.peak_bytes, usage.ru_maxrss * 1024)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def interleave(commands: Sequence[Runs], rounds: int) -> None:
    """Runs A B C A B C ..., after one round that is not counted."""
    for turn in range(rounds + 1):
        for command in commands:
            command.run()
            if turn == 0:
                command.seconds.clear()


def ratios(of: Runs, to: Runs) -> tuple[float, float, float]:
    """Median, least and greatest of the times of `of` over those of `to`, round by round."""
    each = [a / b for a, b in zip(of.seconds, to.seconds)]
    return statistics.median(each), min(each), max(each)


def row(runs: Runs, peer: Runs | None, n_bytes: int) -> dict[str, Any]:
    """What a table of results says of a command."""
    result = {
        "command": runs.name,
        "seconds": runs.median,
        "gb_per_second": n_bytes / runs.median / 1e9,
        "peak_mb": runs.peak_bytes / 1e6,
    }
    if peer is not None:
        middle, low, high = ratios(peer, runs)  # times as fast as the peer
        result |= {"peer": peer.name, "times_as_fast": middle, "low": low, "high": high}
    return result
