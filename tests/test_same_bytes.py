"""Files made of the bundled model are the same to the last byte, from version to version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyquant.machine.environment import environment
from tests.support import ROOT
from tests.support.file_hashes import PORTABLE, portable_hashes, statistics_hashes

LIST = json.loads((ROOT / "tests" / "data" / "file_hashes.json").read_text())
SOME = ("q4_0", "q8_table balanced", "table as q4_t", "ggml:Q4_K")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_some_files() -> None:
    assert portable_hashes(SOME) == {name: LIST["portable"][name] for name in SOME}


@pytest.mark.ci
def test_files_that_every_cpu_makes() -> None:
    assert LIST["portable"].keys() == PORTABLE.keys()
    assert portable_hashes() == LIST["portable"]


@pytest.mark.slow
def test_files_made_with_statistics() -> None:
    if sorted(environment()["cpu_features"]) != LIST["cpu"]:
        pytest.skip("the list was made on a CPU with other instructions: sums of products end otherwise")
    assert statistics_hashes() == LIST["statistics"]
