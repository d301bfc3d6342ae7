"""The native readers, fuzzed for half a minute each; `make fuzz SECONDS=3600` takes longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fuzz_targets import TARGETS, NoFuzzer, fuzz

SECONDS = 30


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_no_input_ends_a_reader(target: str, tmp_path: Path) -> None:
    try:
        said = fuzz(target, tmp_path, SECONDS)
    except NoFuzzer as error:
        pytest.skip(str(error))
    assert " executions, " in said
