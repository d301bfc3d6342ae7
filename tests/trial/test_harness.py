"""The trial sees what it is to see: crashes, hangs, greed, tracebacks. Else no failure would say nothing."""

from __future__ import annotations

import os
import re
import signal
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pyquant.errors import ConfigError
from tests.trial import forked
from tests.trial.case import HELD, REFUSED, Attack, Failed, Failure
from tests.trial.disturbances import OUR_FRAME, PACKAGE
from tests.trial.forked import run_forked
from tests.trial.mutations import judged
from tests.trial.runner import Result, Trial, sum_up


class Script(Attack):
    """Does in each case what a list says."""

    name, what, one_in, forked = "script", "a list", 1, True

    def __init__(self, *steps: Callable[[], str]) -> None:
        self.steps = steps

    def run(self, rng: np.random.Generator, folder: Path) -> str:
        number = int((folder / "next").read_text() if (folder / "next").exists() else 0)
        (folder / "next").write_text(str(number + 1))
        return self.steps[number]()


def refuse() -> str:
    return judged(lambda: make(ConfigError("no")))


def make(error: Exception) -> None:
    raise error


def die() -> str:
    os.kill(os.getpid(), signal.SIGUSR1)
    return HELD


def hang() -> str:
    while True:
        pass


def greed() -> str:
    return HELD if np.ones(300 << 20, np.uint8).any() else REFUSED


def warn() -> str:
    return judged(lambda: warnings.warn("careless", RuntimeWarning, stacklevel=1))


def test_what_fails_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "PATIENCE", 3.0)
    steps = [
        lambda: HELD, refuse, die, lambda: judged(lambda: make(KeyError("x"))), hang, greed, warn,
        lambda: judged(lambda: make(ConfigError("two\nlines"))), lambda: HELD,
    ]  # fmt: skip
    failures: list[Failure] = []
    outcomes = run_forked(Script(*steps), range(len(steps)), 1, tmp_path, failures)
    assert (outcomes[HELD], outcomes[REFUSED]) == (2, 1)
    said = {failure.case: failure.what for failure in failures}
    assert sorted(said) == [2, 3, 4, 5, 6, 7]
    assert said[2] == "signal SIGUSR1"
    assert said[3].startswith("KeyError: 'x'")
    assert said[4].startswith("hangs: ")
    taken = re.match(r"takes (\d+) MB", said[5])
    assert taken
    assert 300 <= int(taken[1]) < 310  # what Python takes meanwhile counts as well
    assert said[6].startswith("RuntimeWarning: careless")
    assert said[7].startswith("more than a line")


def test_an_error_that_is_not_ours_is_a_failure() -> None:
    with pytest.raises(Failed, match="ZeroDivisionError"):
        judged(lambda: 1 // 0)


def test_trials_add_up() -> None:
    result = Result(Script())
    result.outcomes.update({HELD: 2, REFUSED: 3})
    result.failures.append(Failure("script", 4, "x"))
    once = Trial(1, [result]).to_json()
    twice = sum_up([once, {**once, "seed": 2}])
    assert twice["cases"] == 2 * once["cases"] == 12
    (attack,) = twice["attacks"]
    assert (attack["held"], attack["refused"], attack["failed"]) == (4, 6, 2)
    assert twice["seed"] == "1, 2"


def test_a_traceback_of_python_while_it_starts_is_not_ours() -> None:
    packages = PACKAGE.parent.with_name("pyquant") / ".venv/lib/python3/site-packages/other.py"
    for path, ours in ((PACKAGE / "cli/paths.py", True), (PACKAGE / "__main__.py", False), (packages, False)):
        assert bool(OUR_FRAME.search(f'  File "{path}", line 1, in <module>')) == ours
