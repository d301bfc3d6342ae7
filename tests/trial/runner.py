"""Shares cases out among attacks, and says what came of them."""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.support import ROOT
from tests.trial.case import HELD, REFUSED, SKIPPED, Attack, Failed, Failure, generator
from tests.trial.forked import PIECE, pieces, run_forked
from tests.trial.samples import Samples


@dataclass
class Result:
    """Results of an attack's cases; seconds: of the wall."""

    attack: Attack
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def n_cases(self) -> int:
        return sum(self.outcomes.values()) + len(self.failures)


@dataclass(frozen=True)
class Trial:
    """A trial, done."""

    seed: int
    results: list[Result]

    @property
    def failures(self) -> list[Failure]:
        return [failure for result in self.results for failure in result.failures]

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": "pyquant.trial/1",
            "seed": self.seed,
            "cases": sum(result.n_cases for result in self.results),
            "attacks": [
                {
                    "attack": result.attack.name,
                    "what": result.attack.what,
                    "cases": result.n_cases,
                    **{name: result.outcomes[name] for name in (HELD, REFUSED, SKIPPED)},
                    "failed": len(result.failures),
                    "seconds": round(result.seconds, 1),
                }
                for result in self.results
            ],
            "failures": [asdict(failure) for failure in self.failures],
        }


def run_trial(
    attacks: Sequence[Attack],
    n_cases: int,
    seed: int,
    *,
    case: int | None = None,
    minutes: float = math.inf,
    tell: Callable[[Result], None] = lambda result: None,
) -> Trial:
    """Runs n_cases cases, shared out among attacks, each with one at least; or of each that of a number.

    Where `minutes` are over it ends after the piece that is at work.
    """
    end = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory(prefix="trial-") as temporary:
        folder = Path(temporary)
        (folder / "samples").mkdir()
        # Samples are made in another process: what computes has threads, which do not outlive a fork.
        make = [sys.executable, "-m", "tests.trial.samples", str(folder / "samples")]
        subprocess.run(make, check=True, cwd=ROOT)
        samples = Samples(folder / "samples")
        results = []
        whole = sum(1 / attack.one_in for attack in attacks)
        for attack in attacks:
            n = math.ceil(n_cases / attack.one_in / whole)
            own = folder / attack.name
            own.mkdir()
            attack.prepare(samples, own)
            result = Result(attack)
            size = PIECE if attack.forked else 1
            for cases in pieces(n, size) if case is None else [range(case, case + 1)]:
                begin = time.monotonic()
                if begin > end:
                    break
                if attack.forked:
                    result.outcomes += run_forked(attack, cases, seed, own, result.failures)
                else:
                    _run_here(attack, cases, seed, own, result)
                result.seconds += time.monotonic() - begin
                tell(result)
            results.append(result)
    return Trial(seed, results)


def _run_here(attack: Attack, cases: range, seed: int, folder: Path, result: Result) -> None:
    for case in cases:
        own = folder / str(case)
        own.mkdir()
        try:
            result.outcomes[attack.run(generator(seed, attack.name, case), own)] += 1
        except Failed as failed:
            result.failures.append(Failure(attack.name, case, str(failed)))


def sum_up(trials: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Adds the results of several trials, as JSON, attack by attack."""
    attacks: dict[str, dict[str, Any]] = {}
    for row in (row for trial in trials for row in trial["attacks"]):
        total = attacks.setdefault(row["attack"], {"attack": row["attack"], "what": row["what"]})
        for name in row.keys() - {"attack", "what"}:
            total[name] = round(total.get(name, 0) + row[name], 1)
    return {
        "schema": "pyquant.trial/1",
        "seed": ", ".join(map(str, dict.fromkeys(trial["seed"] for trial in trials))),
        "cases": sum(trial["cases"] for trial in trials),
        "attacks": list(attacks.values()),
        "failures": [failure for trial in trials for failure in trial["failures"]],
    }
