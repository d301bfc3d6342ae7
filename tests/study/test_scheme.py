"""A study of modes from a file outside of the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyquant.schemes.outside import load_modes
from pyquant.study.config import read_study
from pyquant.study.plan import make_plan
from pyquant.study.quantizer import make_quantizers
from pyquant.study.store import Store
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


def test_files_that_modes_name_are_beside_the_study_and_part_of_keys(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = "    table_file: Path = Field(description='a file')\n    bound: int = Field("
    text = scheme("of_a_file").replace("    bound: int = Field(", own)
    (tmp_path / "of_a_file.py").write_text("from pathlib import Path\n" + text)
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for file in files:
        file.write_text(file.stem)
    config = tmp_path / "study.toml"
    named = """mode = "of_a_file"\nbound = 1\ntable_file = ["a.txt", "b.txt"]"""
    config.write_text(f"""scheme = "of_a_file.py"\nmeasure = ["size"]\n[[quantizer]]\n{named}\n""")
    monkeypatch.chdir(tmp_path.parent)

    def keys() -> list[str]:
        study = read_study(config, models=[small_model])
        assert [quantizer.mode.table_file for quantizer in study.quantizers()] == files
        assert [quantizer.label for quantizer in study.quantizers()] == ["of_a_file a 1", "of_a_file b 1"]
        with Store(tmp_path / "results") as store:
            return [row.runs["size", None].key for row in make_plan(study, store).rows]

    before = keys()
    files[0].write_text("changed")
    assert [old == new for old, new in zip(before, keys())] == [True, False, True]


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
