"""Whole processes, timed in turns, so that drift of the machine meets all of them alike."""

from __future__ import annotations

import os
import re
import resource
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Runs:
    """One command and what its runs took.

    seconds: wall clock; cpu_seconds: of all its threads. peak_bytes: resident memory, of the processes it
    starts too; own_bytes: of it what is mapped to no file. said: by the last.
    """

    name: str
    command: Sequence[str]
    clean: Sequence[str] = ()  # files to remove before a run
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    peak_bytes: int = 0
    own_bytes: int = 0
    said: str = ""

    def run(self) -> None:
        for path in self.clean:
            if os.path.exists(path):
                os.unlink(path)
        with tempfile.TemporaryFile("w+") as output:
            cpu, begin = _cpu_seconds(), time.perf_counter()
            with subprocess.Popen(self.command, stdout=output, stderr=subprocess.STDOUT) as process:
                watcher = threading.Thread(target=self._watch, args=(process.pid,), daemon=True)
                watcher.start()
                process.wait()
                seconds = time.perf_counter() - begin
            watcher.join()
            output.seek(0)
            self.said = output.read()
            if process.returncode != 0:
                raise SystemExit(f"{' '.join(map(str, self.command))} failed:\n{self.said[-2000:]}")
        self.seconds.append(seconds)
        self.cpu_seconds.append(_cpu_seconds() - cpu)

    def _watch(self, pid: int) -> None:
        # Memory is not read from wait4: what that counts begins with the memory of this process, its parent.
        while memory := _memory(pid):
            self.peak_bytes = max(self.peak_bytes, memory[0])
            self.own_bytes = max(self.own_bytes, memory[1])
            time.sleep(0.01)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def _memory(pid: int) -> tuple[int, int] | None:
    """Return the sums of peaks and of own bytes of a process and those it started; None once it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return None
    sizes = dict(re.findall(r"(VmHWM|RssAnon):\s*(\d+) kB", status))
    if not sizes:
        return None
    every = [(1024 * int(sizes["VmHWM"]), 1024 * int(sizes["RssAnon"]))]
    every += [memory for child in " ".join(lists).split() if (memory := _memory(int(child)))]
    return sum(peak for peak, _ in every), sum(own for _, own in every)


def _cpu_seconds() -> float:
    """Return the CPU time of all processes that this one waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def interleave(commands: Sequence[Runs], rounds: int) -> None:
    """Runs A B C A B C ..., after one round that is not counted."""
    for turn in range(rounds + 1):
        for command in commands:
            os.sync()  # so that none waits for what another wrote
            command.run()
            if turn == 0:
                command.seconds.clear()
                command.cpu_seconds.clear()


def versus(peer: str, ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    """Say how many times as fast we are, round by round: of rates, or of times the other way round."""
    each = [a / b for a, b in zip(ours, theirs)]
    return {"peer": peer, "times_as_fast": statistics.median(each), "low": min(each), "high": max(each)}


def row(runs: Runs, peer: Runs | None, n_bytes: int) -> dict[str, Any]:
    """Row of a command in a table of results."""
    result = {
        "command": runs.name,
        "seconds": runs.median,
        "gb_per_second": n_bytes / runs.median / 1e9,
        "peak_mb": runs.peak_bytes / 1e6,
    }
    if peer is not None:
        result |= versus(peer.name, peer.seconds, runs.seconds)
    return result
