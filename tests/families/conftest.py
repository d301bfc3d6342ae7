"""Fixtures for tests of families: models, a text to calibrate on and another to measure on, calibrations."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from pyquant.calibration.calibrate import calibrate_model
from tests.support.families import CHUNKS, CTX, FAMILIES

# Letters of many alphabets: models that know bytes and few pieces see most of their tokens in them.
ALPHABETS = [(0x21, 0x7F), (0xA1, 0x17F), (0x391, 0x3C9), (0x410, 0x44F), (0x5D0, 0x5EA), (0x905, 0x939)]


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The model of a family by its name, made once."""
    folder = tmp_path_factory.mktemp("families")
    return cache(lambda name: FAMILIES[name].write(folder / f"{name}.gguf"))


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A text to calibrate on and another of the same words, common and rare ones."""
    letters = np.concatenate([np.arange(*alphabet) for alphabet in ALPHABETS])
    rng = np.random.default_rng(2)
    words = ["".join(map(chr, rng.choice(letters, rng.integers(1, 6)))) for _ in range(3000)]
    frequency = 1 / np.arange(10, 10 + len(words))
    folder = tmp_path_factory.mktemp("texts")
    paths = folder / "calibration.txt", folder / "held_out.txt"
    for path in paths:
        path.write_text(" ".join(rng.choice(words, 3000, p=frequency / frequency.sum())), encoding="utf-8")
    return paths


@pytest.fixture(scope="session")
def stats(
    family: Callable[[str], Path], texts: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """HESSIAN of a family's model, and "imatrix.gguf" beside it; of the output matrix too."""

    @cache
    def make(name: str) -> Path:
        path = tmp_path_factory.mktemp("stats") / "stats.gguf"
        calibrate_model(
            family(name), [texts[0]], path, n_ctx=CTX, n_chunks=CHUNKS, threads=1,
            imatrix=path.with_name("imatrix.gguf"), process_output=True,
        )  # fmt: skip
        return path

    return make
