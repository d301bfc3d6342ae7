"""Check answers in a process of its own, with limits of time and memory: a check may hang, or eat memory."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from pyquant.errors import ConfigError
from pyquant.generation.structured.task import Item, Task, Verdict

SECONDS = 10.0  # an answer may take so long, ...
STARTING = 60.0  # ... and the process so long to start
MEMORY = 2 << 30  # bytes of addresses


class Checker:
    """Checks answers to a task, of a module that another process finds; a context manager.

    Each answer may take so many seconds, and bytes of memory.
    """

    def __init__(self, task: Task, *, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        self._task, self._seconds, self._memory = task, seconds, memory
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None

    def check(self, item: Item, answer: str) -> tuple[Verdict, str]:
        """Check an answer; beside the verdict stands why there is none, and it refuses all, or ""."""
        pipe = self._pipe or self._start()
        try:
            pipe.send((item, answer))
            if not pipe.poll(self._seconds):
                self._stop()
                return Verdict(), f"the check took more than {self._seconds:g} s"
            verdict, error = pipe.recv()
        except (EOFError, OSError):
            self._stop()
            return Verdict(), "the check ended its process"
        return verdict, error

    def _start(self) -> Connection:
        ours, theirs = Pipe()
        command = [sys.executable, "-m", "pyquant.generation.structured.check_worker", str(theirs.fileno())]
        self._process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that what a check has begun ends with it
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        theirs.close()
        self._pipe = ours
        try:
            ours.send((self._task, self._memory, self._seconds))
            ready = ours.poll(STARTING) and ours.recv()
        except (EOFError, OSError):
            ready = False
        if not ready:
            self._stop()
            raise ConfigError(f"task {self._task.name}: the process that checks answers does not start")
        return ours

    def _stop(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None

    def __enter__(self) -> Checker:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
