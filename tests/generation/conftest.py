"""The vocabulary of the bundled model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyquant import data
from pyquant.llama.model import Model
from pyquant.llama.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def vocabulary() -> Iterator[Vocabulary]:
    with Model(data.model_path()) as model:
        yield model.vocabulary
