"""The trial, with a bounded number of cases."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support import ROOT
from tests.trial.attacks import every_attack

N_CASES = 20_000
QUICK = ["gguf", "pqz", "stats", "imatrix", "mode", "study", "table", "sensitivity", "histogram", "items"]
QUICK += ["recipe", "types", "prompts", "template", "draft-", "lark", "gbnf", "regex", "schema"]


def trial(*words: object) -> dict:
    command = [sys.executable, "-m", "tests.trial", "--json", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    assert told["schema"] == "pyquant.trial/1"
    assert (done.returncode == 0) == (told["failures"] == [])
    return told


@pytest.mark.ci
def test_quick_attacks() -> None:
    told = trial("--cases", 3000, *(word for name in QUICK for word in ("--attack", name)))
    assert told["failures"] == []
    assert told["cases"] >= 3000
    for attack in told["attacks"]:
        assert attack["held"] + attack["refused"] == attack["cases"]
        assert attack["refused"] > 0  # damage is seen


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_attacks() -> None:
    told = trial("--cases", N_CASES)
    assert told["failures"] == []
    assert [attack["attack"] for attack in told["attacks"]] == [attack.name for attack in every_attack()]


@pytest.mark.ci
def test_a_case_is_the_same_again() -> None:
    once, again = (
        trial("--attack", "mode", "--attack", "table", "--cases", 200, "--seed", 5) for _ in range(2)
    )
    counts = [[(a["attack"], a["held"], a["refused"]) for a in told["attacks"]] for told in (once, again)]
    assert counts[0] == counts[1]
