"""Runs quick cases in forked processes, thousands in each: its crash, hang or greed is a failure."""

from __future__ import annotations

import json
import mmap
import os
import resource
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pyquant.machine.memory import forget_peak, peak_memory
from tests.trial.case import HELD, REFUSED, SKIPPED, Attack, Failed, Failure, generator

PATIENCE = 10.0  # seconds of CPU time that a case may take
WAITS = 60.0  # seconds of the wall, after which a case that computes nothing waits for what never comes
MEMORY = 200 << 20  # bytes that a case may take, beside twice its file
PIECE = 2000  # cases of one process, at most
OUTCOMES = (HELD, REFUSED, SKIPPED)
# Places in what both processes see: the case, when it began by both clocks, and a count of each outcome.
CASE, CPU, WALL, COUNTS = 0, 1, 2, 3


class Board:
    """Numbers that a process and its fork share: the case at work, when it began, and what came of others."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, mmap.PAGESIZE)
        self.numbers = np.frombuffer(self._map, np.float64)

    def counts(self) -> Counter[str]:
        return Counter({name: int(self.numbers[COUNTS + i]) for i, name in enumerate(OUTCOMES)})


def run_forked(
    attack: Attack, cases: range, seed: int, folder: Path, failures: list[Failure]
) -> Counter[str]:
    """Runs cases, as many in a process as it stands; returns how often each outcome came."""
    total: Counter[str] = Counter()
    begin = cases.start
    while begin < cases.stop:
        board = Board()
        board.numbers[[CASE, CPU, WALL]] = begin, 0, time.monotonic()
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            _work(attack, range(begin, cases.stop), seed, folder, board, writer)
        os.close(writer)
        problem = _watch(child, board)
        with os.fdopen(reader) as pipe:
            failures += [Failure(**json.loads(line)) for line in pipe]
        total += board.counts()
        begin = cases.stop
        if problem:
            case = int(board.numbers[CASE])
            failures.append(Failure(attack.name, case, problem))
            begin = case + 1
    return total


def _watch(child: int, board: Board) -> str | None:
    """Waits for the process; what ended it, if it did not end by itself."""
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            if os.WIFSIGNALED(status):
                return f"signal {signal.Signals(os.WTERMSIG(status)).name}"
            return None if status == 0 else f"exit status {os.WEXITSTATUS(status)}"
        busy, waits = _seconds(child) - board.numbers[CPU], time.monotonic() - board.numbers[WALL]
        if busy > PATIENCE or (waits > WAITS and busy < 1):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return f"hangs: {busy:.0f} s of work in {waits:.0f} s"
        time.sleep(0.02)


def _seconds(child: int) -> float:
    """CPU time of a process, all its threads together."""
    try:
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _work(attack: Attack, cases: range, seed: int, folder: Path, board: Board, writer: int) -> None:
    status = 1
    warnings.simplefilter("error")
    try:
        attack.begin()
        _limit(attack.addresses)
        with os.fdopen(writer, "w") as pipe:
            for case in cases:
                board.numbers[[CASE, CPU, WALL]] = case, time.process_time(), time.monotonic()
                try:
                    outcome = _measured(attack, generator(seed, attack.name, case), folder)
                    board.numbers[COUNTS + OUTCOMES.index(outcome)] += 1
                except Failed as failed:
                    said = str(failed)
                    print(
                        json.dumps({"attack": attack.name, "case": case, "what": said}), file=pipe, flush=True
                    )
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _measured(attack: Attack, rng: np.random.Generator, folder: Path) -> str:
    forget_peak()
    before = peak_memory()
    outcome = attack.run(rng, folder)
    allowed = MEMORY + 2 * max((path.stat().st_size for path in folder.iterdir()), default=0)
    if (taken := peak_memory() - before) > allowed:
        raise Failed(f"takes {taken >> 20} MB, {allowed >> 20} MB are allowed")
    return outcome


def _limit(addresses: int) -> None:
    most = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE + addresses
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def pieces(n: int, size: int) -> Iterator[range]:
    """Cuts n cases into pieces, after each of which progress is said."""
    for begin in range(0, n, size):
        yield range(begin, min(begin + size, n))
