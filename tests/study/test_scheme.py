"""A study of modes from a file outside of the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyquant.schemes.outside import load_modes
from pyquant.study.quantizer import make_quantizers
from tests.support.command import run
from tests.support.outside_scheme import scheme

STUDY = """
scheme = "mine.py"
measure = ["size"]

[[quantizer]]
mode = "mine"
bound = [1, 2]
"""


@pytest.mark.ci
def test_a_study_has_modes_of_a_file(small_model: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(scheme("mine"))
    (tmp_path / "study.toml").write_text(STUDY)
    arguments = ["study", "run", tmp_path / "study.toml", "--model", small_model, "--workers", "1"]
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    n_made = int(done.stdout.split()[0])
    keys = {path.name for path in (tmp_path / "study-results" / "runs").iterdir()}
    assert run(*arguments, cwd=tmp_path).stdout.startswith("0 results made")
    # Another scheme under the same name has other results.
    (tmp_path / "mine.py").write_text(scheme("mine").replace("(self.bound)", "(self.bound + 1)"))
    changed = run(*arguments, cwd=tmp_path)
    assert changed.returncode == 0, changed.stderr
    assert 0 < int(changed.stdout.split()[0]) <= n_made
    assert {path.name for path in (tmp_path / "study-results" / "runs").iterdir()} > keys


def test_parameters_that_may_be_left_out_are_named(tmp_path: Path) -> None:
    optional = "    other: int = 0\n    bound: int = Field(0, "
    (tmp_path / "mine.py").write_text(scheme("two_bounds").replace("    bound: int = Field(", optional))
    load_modes(tmp_path / "mine.py")
    made = make_quantizers([{"bound": [0, 1]}, {"other": 1}], {"mode": "two_bounds"}, {})
    labels = ["two_bounds", "two_bounds bound=1", "two_bounds other=1"]
    assert [quantizer.label for quantizer in made] == labels


def test_a_file_that_is_missing_is_named(small_model: Path, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    refused = run("study", "run", tmp_path / "study.toml", "--model", small_model, cwd=tmp_path)
    assert refused.returncode == 2
    assert f"{tmp_path / 'mine.py'}: no such file; a scheme is a Python file" in refused.stderr
