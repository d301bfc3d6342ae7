"""Statistics of generated models, and models rounded by them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from pyquant.calibration.calibrate import calibrate_model
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode


@pytest.fixture(scope="session")
def stats_of(generated: Callable[[str], Path], text: Path, tmp_path_factory) -> Callable[[str], Path]:
    """HESSIAN of a generated model."""

    @cache
    def make(name: str) -> Path:
        path = tmp_path_factory.mktemp("stats") / "stats.gguf"
        calibrate_model(generated(name), [text, text], path, n_ctx=64)
        return path

    return make


@pytest.fixture(scope="session")
def made(generated, stats_of, tmp_path_factory) -> Callable[..., Path]:
    """A generated model quantized to IQ4_NL by its HESSIAN, in order unless said otherwise."""
    folder = tmp_path_factory.mktemp("made")

    @cache
    def make(model: str, **settings: object) -> Path:
        output = folder / f"{len(list(folder.iterdir()))}.gguf"
        mode = {"mode": "ggml:IQ4_NL", "hessian": stats_of(model), "error_propagation": 32, **settings}
        quantize_model(generated(model), output, make_mode(mode))
        return output

    return make
