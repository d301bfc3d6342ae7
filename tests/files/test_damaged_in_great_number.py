"""Every reader, with damaged files of its sort: errors of one line, in bounded time and memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fuzz import run_apart


@pytest.mark.parametrize("n", [40, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_readers_refuse_what_they_cannot_read(tmp_path: Path, n: int) -> None:
    printed = run_apart("tests.support.readers", n, tmp_path)
    assert len(printed.splitlines()) == 10
    assert all("Error" in line for line in printed.splitlines())
