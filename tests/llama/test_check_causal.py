"""Encoders, embedding and diffusion models are refused by what they are: llama.cpp issues 10677, 12080."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pyquant.calibration.calibrate import calibrate_model
from pyquant.errors import ModelFileError
from pyquant.evaluate.compare import compare_models
from pyquant.evaluate.perplexity import measure_perplexity
from pyquant.llama.model import Model
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.models import Model as Generated
from tests.support.other_models import bert, dream, embedding, t5, without_logits

WHAT = {
    dream: "dream is a diffusion model",
    embedding: "llama is an encoder or embedding model",
    without_logits: "llama-embed is an encoder or embedding model, without logits",
    bert: "bert is an encoder or embedding model",
    t5: "t5 is a model with an encoder",
}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("what somebody wrote " * 200)
    return path


@pytest.mark.parametrize("write", WHAT, ids=lambda write: write.__name__)
def test_it_is_said_what_it_is(tmp_path: Path, text: Path, write: Callable[[Path], Path]) -> None:
    path = write(tmp_path / "model.gguf")
    other = Generated(n_layer=1).write(tmp_path / "other.gguf")
    calls: list[Callable[[], object]] = [
        lambda: measure_perplexity(path, text, n_ctx=64),
        lambda: compare_models(other, [path], text, n_ctx=64),
        lambda: calibrate_model(path, [text], tmp_path / "stats", n_ctx=64, n_chunks=80),
    ]
    for call in calls:
        with pytest.raises(ModelFileError, match=rf"^{path}: {WHAT[write]}.*; pyquant quantizes it .*$"):
            call()
    assert not (tmp_path / "stats").exists()


@pytest.mark.parametrize("write", WHAT, ids=lambda write: write.__name__)
def test_it_is_quantized(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    path = write(tmp_path / "model.gguf")
    result = quantize_model(path, tmp_path / "out.gguf", make_mode({"mode": "ggml:Q8_0"}))
    assert result.tensors


def test_what_llama_decode_asserts_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder whose encoder has read nothing: it would end the process."""
    monkeypatch.setattr("pyquant.llama.model.check_decoder", lambda *_: None)
    tokens = np.ones((1, 8), np.int32)
    with (
        Model(t5(tmp_path / "model.gguf")) as model,
        model.context(n_ctx=64, threads=1) as context,
        pytest.raises(ModelFileError, match=r"model\.gguf: llama\.cpp cannot run it: .*llama_encode"),
    ):
        context.decode(tokens, 0, np.ones(8, bool))
