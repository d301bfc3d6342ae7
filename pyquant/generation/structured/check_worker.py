"""The process that checks answers: `python -m pyquant.generation.structured.check_worker FILE_DESCRIPTOR`."""

from __future__ import annotations

import contextlib
import resource
import subprocess
import sys
from multiprocessing.connection import Connection

from pyquant.generation.structured.task import Item, Task, Verdict


def main() -> None:
    """Check what comes through a pipe, until it is closed."""
    with Connection(int(sys.argv[1])) as pipe, contextlib.suppress(EOFError):
        task, memory, seconds = pipe.recv()
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        pipe.send(True)
        while True:
            item, answer = pipe.recv()
            _limit_time(seconds)
            pipe.send(_check(task, item, answer))


def _limit_time(seconds: float) -> None:
    """End this process where a check goes on though nobody waits for it any more."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(usage.ru_utime + usage.ru_stime + seconds) + 2, most))


def _check(task: Task, item: Item, answer: str) -> tuple[Verdict, str]:
    try:
        verdict = task.check(item, answer)
        if not isinstance(verdict, Verdict):
            raise TypeError(f"check gives {type(verdict).__name__}, and no Verdict")
        return verdict, ""
    except MemoryError:
        return Verdict(), "the check needs too much memory"
    except subprocess.TimeoutExpired as error:
        return Verdict(), f"{error.cmd[0]} took more than {error.timeout:g} s"
    except Exception as error:  # of a task of one's own, too: the other answers are still checked
        return Verdict(), f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
