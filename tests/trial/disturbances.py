"""Commands that write, killed, stopped, crowded, or short of something: nothing is lost, and they go on."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import time
from abc import abstractmethod
from pathlib import Path

import numpy as np

import pyquant
from tests.trial.case import HELD, REFUSED, SKIPPED, Attack, Failed
from tests.trial.commands import COMMANDS, Command, check_said, digests, measured, mounted
from tests.trial.samples import Samples

# A line of a traceback through the package. Python has tracebacks of its own while it starts, before it knows
# of us, so a signal may come until `main` has begun. The folder of a checkout, where Python's own packages
# may be as well, is often named as the package is.
PACKAGE = Path(pyquant.__file__).parent
OUR_FRAME = re.compile(rf'File "{re.escape(str(PACKAGE))}/(?!__(init|main)__\.py)')
PATIENCE = 300  # seconds for a whole command, on a machine that may be busy


class Disturbance(Attack):
    """Disturbs a command that is drawn; afterwards the same command, undisturbed, has to end as always."""

    def prepare(self, samples: Samples, folder: Path) -> None:
        self._folder, self._samples = folder, samples
        self._commands: dict[str, Command] = {}

    def run(self, rng: np.random.Generator, folder: Path) -> str:
        name = str(rng.choice(list(COMMANDS)))
        if name not in self._commands:
            self._commands[name] = measured(name, self._samples, self._folder)
        command, out = self._commands[name], folder / "out"
        out.mkdir()
        before = digests(self._samples.folder)
        outcome = self.disturb(command, rng, out)
        if digests(self._samples.folder) != before:
            raise Failed(f"{name}: an input changed")
        return outcome

    @abstractmethod
    def disturb(self, command: Command, rng: np.random.Generator, out: Path) -> str:
        """Runs it, disturbed; then as always."""


class Kills(Disturbance):
    name, what, one_in = "kills", "commands that write, killed anywhere, and run again", 5000

    def disturb(self, command: Command, rng: np.random.Generator, out: Path) -> str:
        process = command.start(out, start_new_session=True)
        _wait(command, rng, out, process)
        process.kill()
        process.communicate()
        command.check_outputs(out, "killed")
        command.finish(out, "a kill")
        return HELD


class Signals(Disturbance):
    name, what, one_in = "signals", "commands that write, ended by SIGINT or SIGTERM", 10_000

    def disturb(self, command: Command, rng: np.random.Generator, out: Path) -> str:
        number = signal.SIGINT if rng.random() < 0.5 else signal.SIGTERM
        process = command.start(out, start_new_session=True)
        _wait(command, rng, out, process)
        if rng.random() < 0.5:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE)
        began = OUR_FRAME.search(said) or "Traceback" not in said
        if began and process.returncode not in (0, -number, 130):
            check_said(said, process.returncode, f"{command.name}, {number.name}")
        if began and "Traceback" in said:
            raise Failed(f"{command.name}, {number.name}: {' '.join(said.split())[-300:]}")
        command.check_outputs(out, number.name)
        command.finish(out, number.name)
        return HELD


class FullDisks(Disturbance):
    name, what, one_in = "full disks", "commands that write, on a disk that is too small, then is not", 5000

    def disturb(self, command: Command, rng: np.random.Generator, out: Path) -> str:
        needed = 4 * (sum(path.stat().st_size for path in self._folder.glob(f"{command.name} 0/**/*")) >> 10)
        if not mounted(out, int(rng.integers(4, max(8, needed)))):
            return SKIPPED
        try:
            temporary = out / "tmp" if rng.random() < 0.3 else self._folder
            temporary.mkdir(exist_ok=True)
            process = command.start(out, environment={"TMPDIR": str(temporary)})
            _, said = process.communicate(timeout=PATIENCE)
            check_said(said, process.returncode, f"{command.name}, full disk")
            if process.returncode not in (0, 1):
                raise Failed(f"{command.name}, full disk: status {process.returncode}: {said[-300:]}")
            if process.returncode and str(out) not in said:
                raise Failed(f"{command.name}, full disk: no name of a file in it: {said[-300:]}")
            command.check_outputs(out, "full disk")
            subprocess.run(["mount", "-o", "remount,size=64m", out], check=True)
            if temporary.parent == out:
                left = [path.name for path in temporary.iterdir()]
                temporary.rmdir() if not left else _fail(f"{command.name}: temporary files left: {left}")
            command.finish(out, "a full disk")
            return REFUSED if process.returncode else HELD
        finally:
            subprocess.run(["umount", out], check=True)


class Shortages(Disturbance):
    """Too few descriptors, or too little address space."""

    name, what, one_in = "shortages", "commands that write, short of descriptors or memory", 10_000

    def disturb(self, command: Command, rng: np.random.Generator, out: Path) -> str:
        if rng.random() < 0.5:
            kind, most = resource.RLIMIT_NOFILE, int(rng.integers(8, 24))
        else:
            kind, most = resource.RLIMIT_AS, int(rng.integers(300, 2000)) << 20
        process = command.start(out, preexec_fn=lambda: resource.setrlimit(kind, (most, most)))
        try:
            _, said = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Failed(f"{command.name}: hangs with {_amount(kind, most)}") from None
        check_said(said, process.returncode, f"{command.name}, {_amount(kind, most)}")
        command.check_outputs(out, _amount(kind, most))
        command.finish(out, _amount(kind, most))
        return REFUSED if process.returncode else HELD


class Rivals(Disturbance):
    name, what, one_in = "rivals", "the same command twice at once, to the same output", 10_000

    def disturb(self, command: Command, rng: np.random.Generator, out: Path) -> str:
        rivals = [command.start(out)]
        time.sleep(rng.random() * 0.3)
        rivals.append(command.start(out))
        said = [rival.communicate(timeout=PATIENCE)[1] for rival in rivals]
        for rival, words in zip(rivals, said):
            check_said(words, rival.returncode, f"{command.name}, beside its like")
        if not any(rival.returncode == 0 for rival in rivals):
            raise Failed(f"{command.name}, beside its like: neither ended well: {said}"[:500])
        if (written := digests(out)) != command.expected:
            raise Failed(f"{command.name}, beside its like: {sorted(written)}")
        return HELD


def _wait(command: Command, rng: np.random.Generator, out: Path, process: subprocess.Popen[str]) -> None:
    """Waits for a moment: any at all, or one shortly after something was written."""
    if rng.random() < 0.3:
        time.sleep(rng.random() * command.seconds)
        return
    while not any(out.iterdir()) and process.poll() is None:
        time.sleep(0.001)
    time.sleep(rng.random() * 0.5 * command.seconds if command.name == "study" else rng.random() * 0.05)


def _amount(kind: int, most: int) -> str:
    return f"{most} descriptors" if kind == resource.RLIMIT_NOFILE else f"{most >> 20} MB of addresses"


def _fail(message: str) -> None:
    raise Failed(message)
