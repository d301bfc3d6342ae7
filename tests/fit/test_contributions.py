"""What kinds of tensors add to the KLD, and by how much predictions are corrected for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pyquant import make_mode, quantize_model
from pyquant.evaluate.compare import compare_models
from pyquant.files.text import read_text
from pyquant.fit.contributions import corrections, measure_contributions
from pyquant.fit.mixtures import recipe_of
from pyquant.llama.chunks import cut
from pyquant.llama.model import Model
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_type import TensorType as Type
from tests.support.models import F32


def test_a_kind_adds_what_a_file_of_it_alone_has(
    generated: Callable[[str], Path], text: Path, tmp_path: Path
) -> None:
    source = ModelFile(generated(F32))
    files = {}
    for name, kinds in {"both": ("attn_v", "ffn_up"), "attn_v": ("attn_v",), "ffn_up": ("ffn_up",)}.items():
        types = {f"blk.{layer}.{kind}.weight": Type.Q4_0 for kind in kinds for layer in range(2)}
        (tmp_path / "recipe.toml").write_text(recipe_of(types, "F32").to_toml())
        files[name] = tmp_path / f"{name}.gguf"
        mode = make_mode({"mode": "recipe", "recipe": tmp_path / "recipe.toml"})
        quantize_model(source, files[name], mode)
    with Model(source) as model:
        chunks = cut(model, read_text(text), n_ctx=64, n_chunks=3)
    done: list[tuple[int, int]] = []
    added = measure_contributions(
        source, ModelFile(files["both"]), chunks, 2, progress=lambda *step: done.append(step)
    )
    assert list(added) == ["attn_v", "ffn_up"]
    assert done == [(1, 2), (2, 2)]
    compared = compare_models(source, [files["attn_v"], files["ffn_up"]], text, n_ctx=64, n_chunks=3)
    for candidate, by_chunk in zip(compared.candidates, added.values()):
        assert by_chunk.shape == (3,)
        # A file rounds activations to 8 bits where its weights are quantized; here values alone are.
        assert by_chunk.mean() == pytest.approx(candidate.kld.mean, rel=0.1)


def test_certain_factors_are_measured_over_predicted() -> None:
    """Chunks that are harder for all kinds alike tell nothing of a kind."""
    harder = np.array([1.0, 2.0, 0.5])
    measured = {"attn_q": 0.002 * harder, "attn_k": 0.006 * harder, "ffn_up": 0.1 * harder}
    predicted = {"attn_q": 200.0, "attn_k": 300.0, "ffn_up": 20_000.0, "output": 1.0}
    found = corrections(measured, predicted)
    mean = harder.mean()
    assert found == pytest.approx(
        {"attn_q": 0.002 * mean / 200, "attn_k": 0.006 * mean / 300, "ffn_up": 0.1 * mean / 20_000}
    )


def test_uncertain_factors_are_drawn_towards_the_others() -> None:
    predicted = dict.fromkeys(("a", "b", "c", "d"), 1.0)
    measured = {kind: np.array([0.01, 0.011, 0.009, 0.01]) for kind in "abc"}
    measured["d"] = np.array([0.4, 0.0001, 0.0001, 0.0001])  # one chunk's
    found = corrections(measured, predicted)
    assert found["d"] < 0.05 < measured["d"].mean()
    assert found["a"] == pytest.approx(0.01, rel=0.3)


def test_what_predicts_nothing_has_no_factor() -> None:
    assert corrections({"a": np.ones(2)}, {"a": 0.0}) == {}
    assert corrections({"a": np.full(1, 0.5)}, {"a": 2.0}) == {"a": pytest.approx(0.25)}
