"""A base that runs once for models that come one after the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pyquant.errors import ModelFileError, OutputError
from pyquant.evaluate import kept_logits
from pyquant.evaluate.baseline import Baseline
from pyquant.evaluate.compare import compare_models
from pyquant.evaluate.kept_logits import KeptLogits
from pyquant.models.model_file import ModelFile
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.decodes import counted_decodes
from tests.support.models import F32, Model


@pytest.fixture(scope="module")
def models(generated: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A base and two models that are made from it."""
    base, folder = generated(F32), tmp_path_factory.mktemp("models")
    paths = [folder / "q4_0.gguf", folder / "q8_0.gguf"]
    for path in paths:
        quantize_model(base, path, make_mode({"mode": path.stem}))
    return [base, *paths]


@pytest.mark.parametrize("in_memory", [True, False], ids=["in memory", "in a file"])
@pytest.mark.parametrize(("n_ctx", "n_chunks"), [(64, 33), (2100, 1)], ids=["short chunks", "long chunks"])
def test_it_says_what_compare_says(
    models: list[Path], text: Path, n_ctx: int, n_chunks: int, in_memory: bool, monkeypatch
) -> None:
    base, *others = models
    together = compare_models(base, others, text, n_ctx=n_ctx, n_chunks=n_chunks, threads=2)
    monkeypatch.setattr(kept_logits, "bytes_in_memory", lambda n_vocab, n_ctx: in_memory << 40)
    progress: list[tuple[int, int]] = []
    with (
        counted_decodes() as decodes,
        Baseline(ModelFile(base), text, n_ctx=n_ctx, n_chunks=n_chunks, threads=2) as baseline,
    ):
        alone = [baseline.kld_of(model, progress=lambda *p: progress.append(p)) for model in others]
    assert alone == together.candidates
    assert (baseline.scores.nll == together.scores[0].nll).all()
    assert progress[-1] == (n_chunks, n_chunks)
    assert len(set(decodes.values())) == 1  # as many batches of the base as of each model


def test_several_texts(models: list[Path], text: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text(text.read_text()[1000:1400])
    with Baseline(models[0], other, n_ctx=64) as baseline:
        n_of_other = baseline.n_chunks
    assert 1 < n_of_other < 5
    with Baseline(models[0], [text, other], n_ctx=64, n_chunks=5) as baseline:
        assert baseline.n_chunks == 5 + n_of_other
        kld = baseline.kld_of(models[1]).kld.mean
    alone = []
    for one in (text, other):
        with Baseline(models[0], one, n_ctx=64, n_chunks=5) as baseline:
            alone.append(baseline.kld_of(models[1]).kld.mean * baseline.n_chunks)
    assert kld == pytest.approx(sum(alone) / (5 + n_of_other), rel=1e-3)


def test_logits_are_kept_as_they_are(monkeypatch) -> None:
    logits = np.random.default_rng(0).normal(size=(90, 7)).astype(np.float32)
    monkeypatch.setattr(kept_logits, "bytes_in_memory", lambda n_vocab, n_ctx: 0)
    with KeptLogits(90, 7, n_ctx=64) as kept:
        kept.put(30, logits[30:])
        kept.put(0, logits[:30])
        assert (kept.get(50, 40) == logits[50:]).all()
        assert (kept.get(0, 60) == logits[:60]).all()


def test_where_there_is_no_room(models: list[Path], text: Path, small_disk: Path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(small_disk))
    monkeypatch.setattr(kept_logits, "bytes_in_memory", lambda n_vocab, n_ctx: 0)
    size = f"{4 * 320 * 31 * 33:,}"
    with pytest.raises(OutputError, match=rf"logits take {size} bytes.*are free; TMPDIR=FOLDER"):
        Baseline(models[0], text, n_ctx=64, n_chunks=33)


def test_a_model_with_another_vocabulary(models: list[Path], text: Path, tmp_path: Path) -> None:
    other = Model(n_vocab=330).write(tmp_path / "other.gguf")
    with Baseline(models[0], text, n_ctx=64, n_chunks=1) as baseline:
        with pytest.raises(ModelFileError, match=r"other\.gguf: 330 tokens in its vocabulary"):
            baseline.kld_of(other)
        assert baseline.kld_of(models[1]).kld.mean > 0


def test_a_broken_model_is_named(models: list[Path], text: Path, tmp_path: Path) -> None:
    broken = Model(change=lambda name, x: np.where(name == "output.weight", np.float32("nan"), x))
    path = broken.write(tmp_path / "broken.gguf")
    says = r"broken\.gguf: not finite logits in chunk 0"
    with pytest.raises(ModelFileError, match=says):
        Baseline(path, text, n_ctx=64, n_chunks=2)
    with pytest.raises(ModelFileError, match=says):
        compare_models(models[0], [path], text, n_ctx=64, n_chunks=2)
