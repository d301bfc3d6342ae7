"""Statistics that several scripts are tried on."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyquant import data
from pyquant.calibration.calibrate import calibrate_model


@pytest.fixture(scope="session")
def stats_of_both_sides(training_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hessian statistics of the bundled model, with output-side Hessians, of few tokens."""
    stats = tmp_path_factory.mktemp("both") / "stats"
    options = {"n_ctx": 128, "n_chunks": 16, "output_side": 2, "threads": 1}
    calibrate_model(data.model_path(), [training_text], stats, **options)
    return stats
