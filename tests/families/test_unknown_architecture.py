"""A family that llama.cpp does not know: whatever is asked for, the file and its architecture are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from gguf import GGUFWriter

from pyquant.calibration.calibrate import calibrate_model
from pyquant.errors import ModelFileError
from pyquant.evaluate.compare import compare_models
from pyquant.evaluate.perplexity import measure_perplexity
from pyquant.inspect.histogram import count_codes
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.gguf_file import finish
from tests.support.models import Model

MODE = make_mode({"mode": "q4_0"})


@pytest.mark.parametrize(
    "use",
    [
        lambda model, text, output: quantize_model(model, output, MODE),
        lambda model, text, output: calibrate_model(model, [text], output, n_ctx=64, n_chunks=2),
        lambda model, text, output: measure_perplexity(model, text, n_ctx=64, n_chunks=2),
        lambda model, text, output: compare_models(model, [], text, n_ctx=64, n_chunks=2),
        lambda model, text, output: count_codes(model, MODE),
    ],
    ids=["quantize", "calibrate", "perplexity", "compare", "histogram"],
)
def test_it_is_named(use: Callable[[Path, Path, Path], object], text: Path, tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "model.gguf", "nonsuch")
    Model().add_to(writer)
    finish(writer)
    with pytest.raises(ModelFileError, match=r"model\.gguf: .*unknown (model )?architecture:? 'nonsuch'"):
        use(tmp_path / "model.gguf", text, tmp_path / "output")
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]
