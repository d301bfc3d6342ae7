"""Scaled channels leave every family's outputs as they are, and statistics follow without a run."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from pyquant.calibration.calibrate import calibrate_model
from pyquant.llama.chunks import Chunks, forward, make_context
from pyquant.llama.model import Model
from pyquant.models.model_file import ModelFile
from pyquant.rounding.equalize import equalize_model as module
from pyquant.rounding.equalize.equalize_model import equalize_model
from pyquant.rounding.equalize.links import Link, links_of
from tests.support.families import CTX, FAMILIES

# Links of a layer: Q, K and V; gate and up; values; neurons (of experts, too). The output's norm is one more.
LINKS = {
    "Llama": 4, "Mistral": 4, "Mixtral": 4, "Qwen2": 4, "Qwen3": 4, "Qwen3-MoE": 4, "Gemma 2": 4,
    "Gemma 3": 4, "GPT-2": 3, "Phi-3": 4, "StarCoder2": 3, "OLMo2": 2, "Mamba": 1,
}  # fmt: skip


def logits_of(path: Path, tokens: NDArray[np.int32]) -> NDArray[np.float32]:
    with Model(path) as model, make_context(model, tokens.shape[1], threads=1) as context:
        return np.concatenate([piece.logits.copy() for piece in forward(context, Chunks(tokens))])


def any_exponents(rng: np.random.Generator, *, values: bool) -> Callable[..., NDArray[np.int8]]:
    """Exponents at random for every channel; values: for those of values too."""

    def exponents_of(link: Link, _: object) -> NDArray[np.int8]:
        exponents = rng.integers(-3, 4, (link.n_experts, link.n_channels)).astype(np.int8)
        return exponents * (values or "attn_output" not in link.entered[0].name)

    return exponents_of


def test_every_family_has_its_links() -> None:
    assert LINKS.keys() == FAMILIES.keys()


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_model_computes_the_same(
    name: str, values: bool, stats: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logits are equal to the last bit, unless values are scaled: llama.cpp keeps these in F16."""
    family = dataclasses.replace(FAMILIES[name], type=GGMLQuantizationType.F32)
    source, output = family.write(tmp_path / "model.gguf"), tmp_path / "equalized.gguf"
    rng = np.random.default_rng(3)
    monkeypatch.setattr(module, "exponents_of", any_exponents(rng, values=values))
    imatrix = shutil.copy(stats(name).with_name("imatrix.gguf"), tmp_path / "imatrix.gguf")
    done = equalize_model(source, imatrix, output, threads=1)
    model = ModelFile(source)
    n_layers, tied = model.hyperparameter("block_count"), family.tied
    assert done.n_links == n_layers * LINKS[name] + (not tied)
    assert done.rounded == 0
    assert done.kld < (1e-6 if values else 1e-30)
    tokens = rng.integers(259, family.n_vocab, (2, CTX)).astype(np.int32)
    expected = logits_of(source, tokens)
    tolerance = 1e-3 * np.abs(expected).max() if values else 0  # 13 bits of values that are 2^-3 as large
    np.testing.assert_allclose(logits_of(output, tokens), expected, rtol=0, atol=tolerance)
    before, after = model.tensors, ModelFile(output).tensors
    changed = [old.name for old, new in zip(before, after) if old.data() != new.data()]
    assert len(changed) >= done.n_links  # each scales one matrix at least


@pytest.mark.parametrize("name", FAMILIES)
def test_statistics_are_those_of_a_run(
    name: str, texts: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = dataclasses.replace(FAMILIES[name], type=GGMLQuantizationType.F32)
    source, equalized = family.write(tmp_path / "model.gguf"), tmp_path / "equalized.gguf"
    first, followed, run = (tmp_path / file for file in ("first", "followed", "run"))
    monkeypatch.setattr(module, "exponents_of", any_exponents(np.random.default_rng(5), values=False))
    options = {"n_ctx": CTX, "n_chunks": 6, "threads": 1, "process_output": True}
    calibrate_model(source, [texts[0]], first, **options)
    done = equalize_model(source, first, equalized, hessian_out=followed, threads=1)
    assert done.n_scaled > 0
    calibrate_model(equalized, [texts[0]], run, **options)
    assert followed.read_bytes() == run.read_bytes()


def test_channels_of_grouped_heads_are_where_queries_find_them(tmp_path: Path) -> None:
    model = ModelFile(
        FAMILIES["Qwen2"].write(tmp_path / "model.gguf")
    )  # 4 heads of queries, 2 of keys, 24 wide
    (values,) = [link for link in links_of(model) if link.entered[0].name == "blk.0.attn_output.weight"]
    assert (values.n_channels, values.n_heads) == (48, 2)
    columns = values.to_columns(np.arange(48, dtype=np.int8)[None])
    expected = np.concatenate([np.arange(24), np.arange(24), np.arange(24, 48), np.arange(24, 48)])
    np.testing.assert_array_equal(columns, expected[None])
    np.testing.assert_array_equal(values.to_channels(columns.astype(float)), 2.0 * np.arange(48)[None])
