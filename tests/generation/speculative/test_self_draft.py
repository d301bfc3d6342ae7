"""The draft model that is made of its target: kept whole, made again where it is damaged, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyquant import data
from pyquant.errors import ConfigError, ModelFileError, PyquantError
from pyquant.files.text import make_text
from pyquant.fit.method.hessian import HessianMaker
from pyquant.fit.method.split_text import split_text
from pyquant.generation.speculative import self_draft as room
from pyquant.generation.speculative.self_draft import self_draft
from pyquant.models.model_file import open_model
from tests.support.command import run
from tests.support.models import Model as Generated

SMALL = {"n_embd": 64, "n_ff": 64, "n_layer": 1, "n_head": 2, "n_head_kv": 2, "n_vocab": 320}


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small model, an empty cache, and a short text to calibrate on."""
    monkeypatch.setenv("PYQUANT_CACHE", str(tmp_path / "cache"))
    text = make_text(Path("text"), data.training_text()[:4000].encode())
    monkeypatch.setattr(room, "split_text", lambda model, texts, n_ctx, n: split_text(model, [text], 64, 4))
    return Generated(**SMALL).write(tmp_path / "target.gguf")


def test_it_is_made_once_and_again_where_it_is_damaged(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    path = self_draft(target, threads=1, tell=told.append)
    assert path.is_relative_to(tmp_path / "cache")
    assert told[0].startswith("draft model: ")
    assert " MB, made once" in told[0]
    made = path.read_bytes()
    matrices = [tensor for tensor in open_model(path).tensors if len(tensor.shape) > 1]
    assert {tensor.type.name for tensor in matrices} == {"Q4_T"}
    assert self_draft(target, threads=1, tell=told.append) == path
    assert len(told) == 3  # and what Hessian statistics take, and where they are: it was there
    for damaged in (made[:-1], made[:-9] + b"\0" * 9, b""):
        path.write_bytes(damaged)
        assert self_draft(target, threads=1) == path
        assert path.read_bytes() == made
    monkeypatch.setattr(HessianMaker, "in_cache", None)  # statistics are not asked for: it is there
    assert self_draft(target, threads=1) == path


def test_what_is_killed_leaves_nothing_that_is_used(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as within:
        within.setattr(room, "write_json", lambda *given, **named: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            self_draft(target, threads=1)
    made = []
    within_quantize = room.quantize_model
    monkeypatch.setattr(
        room, "quantize_model", lambda *given, **named: made.append(1) or within_quantize(*given, **named)
    )
    self_draft(target, threads=1)
    assert made == [1]


def test_what_cannot_be_made_or_kept_is_refused(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelFileError):
        self_draft(tmp_path / "nowhere.gguf")
    monkeypatch.setenv("PYQUANT_CACHE", str(target / "below_a_file"))
    with pytest.raises((PyquantError, OSError)):
        self_draft(target, threads=1)
    monkeypatch.setenv("PYQUANT_CACHE", "")
    with pytest.raises(ConfigError, match="PYQUANT_CACHE"):
        self_draft(target, threads=1)


@pytest.mark.ci
def test_the_command_falls_back_to_n_grams_and_says_why(tmp_path: Path) -> None:
    quantized = tmp_path / "q8_0.gguf"
    assert run("quantize", data.model_path(), quantized, "Q8_0").returncode == 0
    words = ["-p", "def main(", "--temperature", 0, "--max-tokens", 12]
    done = run("generate", quantized, *words, "--draft", "auto")
    assert done.returncode == 0, done.stderr
    assert "--draft ngram instead of auto: " in done.stderr
    assert done.stdout == run("generate", quantized, *words).stdout
