"""The command line, each command in a forked process: nothing is imported anew, a signal ends one alone."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.support.command import ENVIRONMENT

PATIENCE = 120  # seconds that a command may compute; SIGXCPU ends it then


@dataclass(frozen=True)
class Done:
    """What became of a command. status: as of subprocess, -N where signal N ended it."""

    status: int
    stdout: str
    stderr: str


class ForkedCommands:
    """Runs commands of pyquant, one after the other; a context manager. folder: where they run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, *arguments: object) -> Done:
        print(json.dumps([*map(str, arguments)]), file=self._process.stdin, flush=True)
        assert self._process.stdout is not None
        return Done(*json.loads(self._process.stdout.readline()))

    def __enter__(self) -> ForkedCommands:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forked_commands", self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT | {"GGML_NO_BACKTRACE": "1"},
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()


def main() -> None:
    """Answer requests, a line each, until there are no more. This process itself computes nothing."""
    import pyquant.calibration.calibrate
    import pyquant.evaluate.compare
    import pyquant.evaluate.perplexity
    import pyquant.fit.method.quantize
    import pyquant.rounding.equalize.equalize_model  # noqa: F401
    from pyquant import cli

    requests, os.environ["PYTHONPATH"] = os.dup(0), os.getcwd()
    os.chdir(sys.argv[1])
    with os.fdopen(requests) as lines:
        for line in lines:
            child = os.fork()
            if not child:
                for descriptor, name in enumerate((os.devnull, "stdout.txt", "stderr.txt")):
                    flags = os.O_RDWR | (os.O_CREAT | os.O_TRUNC if descriptor else 0)
                    os.dup2(os.open(name, flags, 0o644), descriptor)
                resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE))
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                sys.argv = ["pyquant", *json.loads(line)]
                cli.main()
                sys.exit()
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            said = [Path(name).read_text(errors="replace") for name in ("stdout.txt", "stderr.txt")]
            print(json.dumps([status, *said]), flush=True)


if __name__ == "__main__":
    main()
