"""The model and the text of methods' tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.methods import NAME


@pytest.fixture
def source(generated: Callable[[str], Path]) -> Path:
    return generated(NAME)


@pytest.fixture(scope="module")
def short(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 20 chunks of 64 tokens."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(text.read_text()[:3000])
    return path
