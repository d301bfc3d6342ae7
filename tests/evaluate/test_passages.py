"""Models side by side over long sequences: what they say is what they say one after the other."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pyquant.evaluate.compare import compare_models, compare_texts
from pyquant.evaluate.comparison import Comparison
from pyquant.files.text import NamedText, read_text
from pyquant.inspect.figures.kld_by_position import kld_by_position_figure
from pyquant.inspect.figures.style import save_figure
from pyquant.llama.cache_types import CacheTypes
from tests.support.models import F32, Model


@pytest.fixture
def models(generated: Callable[[str], Path], tmp_path: Path) -> list[Path]:
    return [generated(F32), *(Model(seed=seed).write(tmp_path / f"{seed}.gguf") for seed in (5, 6))]


def abreast(models: list[Path], text: Path) -> Comparison:
    (found,) = compare_texts(
        models[0], models[1:], [NamedText("t", read_text(text))], n_ctx=64, n_chunks=3, threads=1,
        every_position=True,
    )  # fmt: skip
    return found


def assert_same(one: Comparison, other: Comparison) -> None:
    """Both are the same but for the order of sums, over keys and values in F16, whose last bit is 5e-4."""
    for ours, theirs in zip(one.scores, other.scores, strict=True):
        np.testing.assert_allclose(ours.nll, theirs.nll, rtol=2e-3)
        np.testing.assert_allclose(ours.kld, theirs.kld, rtol=1e-2, atol=1e-5)


def test_side_by_side_is_as_one_after_the_other(models: list[Path], text: Path) -> None:
    alone = compare_models(models[0], models[1:], text, n_ctx=64, n_chunks=3, threads=1)
    found = abreast(models, text)
    assert_same(found, alone)
    assert found.n_tokens == 3 * 31
    assert (found.by_position[0].first, found.by_position[-1].last) == (1, 63)
    assert (alone.by_position[0].first, alone.by_position[-1].last) == (33, 63)
    half = [span for span in found.by_position if span.first >= 33]
    for i, candidate in enumerate(alone.candidates):
        mean = np.average([span.kld[i] for span in half], weights=[span.n_tokens for span in half])
        assert mean == pytest.approx(candidate.kld.mean, rel=1e-3)


def test_batches_and_groups_change_nothing(
    models: list[Path], text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = abreast(models, text)
    monkeypatch.setattr("pyquant.evaluate.passages.UBATCH", 12)  # 64 is no multiple of it
    monkeypatch.setattr("pyquant.evaluate.run_sample.n_abreast", lambda *_: 2)
    assert_same(abreast(models, text), whole)


def test_a_long_context_runs_side_by_side(
    models: list[Path], text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = compare_models(models[0], models[1:], text, n_ctx=64, n_chunks=2, threads=1)

    def never(*_: object) -> None:
        raise AssertionError("logits are kept")

    monkeypatch.setattr("pyquant.evaluate.samples.BATCH", 63)
    monkeypatch.setattr("pyquant.evaluate.run_sample.BaseRun", never)
    found = compare_models(models[0], models[1:], text, n_ctx=64, n_chunks=2, threads=1)
    assert_same(found, alone)
    assert found.by_position[0].first == 33


def test_a_figure_has_a_panel_for_each_text_and_a_line_for_each_model(models: list[Path], text: Path) -> None:
    found = abreast(models, text)
    figure = kld_by_position_figure([found, found])
    for axes in figure.axes:
        assert axes.get_title("left") == "t"
        assert [text.get_text() for text in axes.get_legend().get_texts()] == ["5.gguf", "6.gguf"]
        x, y = axes.get_lines()[1].get_data()
        assert list(y) == [span.kld[1] for span in found.by_position]
        assert x[0] == (found.by_position[0].first + found.by_position[0].last) / 2
    assert len(figure.axes) == 2


def test_a_figure_names_caches_and_files_of_any_name(models: list[Path], text: Path, tmp_path: Path) -> None:
    names = ["_q.gguf", r"5 $\frac $.gguf", os.fsdecode(b"6 \xff.gguf")]
    others = [shutil.copy(models[1], tmp_path / name) for name in names]
    texts = [NamedText(os.fsdecode(b"$\\frac $\xff"), read_text(text))]
    options = {"n_ctx": 64, "n_chunks": 1, "threads": 1, "caches": [CacheTypes("f32", "f32")]}
    figure = kld_by_position_figure(compare_texts(models[0], others, texts, **options))
    save_figure(figure, tmp_path / "figure.svg")
    shown = ["_q.gguf", r"5 \$\frac \$.gguf", "6  .gguf"]
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == [
        *shown, *(f"{name} (KV f32/f32)" for name in [models[0].name, *shown]),
    ]  # fmt: skip
